from hingeline.distributed.fit import fit_blocks as fit_blocks
