# The public names: __init__.py reads them here, and imports each when it is first used.
# isort: off

from hingeline.data.arff import read_arff as read_arff, read_mulan_labels as read_mulan_labels
from hingeline.data.arff import write_arff as write_arff, write_mulan_labels as write_mulan_labels
from hingeline.data.conll import ConlluDocument as ConlluDocument, read_conll as read_conll
from hingeline.data.conll import read_conllu as read_conllu, write_conll as write_conll
from hingeline.data.conll import write_conllu as write_conllu
from hingeline.data.crfsuite import read_crfsuite as read_crfsuite, write_crfsuite as write_crfsuite
from hingeline.data.formats import FORMATS as FORMATS, convert as convert
from hingeline.data.formats import detect_format as detect_format, read_any as read_any
from hingeline.data.images import read_idx as read_idx, read_letters as read_letters
from hingeline.data.records import read_csv as read_csv, read_jsonl as read_jsonl
from hingeline.data.records import read_raw as read_raw, read_table as read_table
from hingeline.data.records import write_csv as write_csv, write_jsonl as write_jsonl
from hingeline.data.samples import FlatData as FlatData, LabelledSequences as LabelledSequences
from hingeline.data.samples import MultilabelData as MultilabelData, Notes as Notes
from hingeline.data.samples import Vocabulary as Vocabulary, load_digit_dates as load_digit_dates
from hingeline.data.samples import load_notes as load_notes, read_vocabulary as read_vocabulary
from hingeline.data.samples import write_vocabulary as write_vocabulary
from hingeline.data.svmlight import read_multilabel as read_multilabel, read_svmhmm as read_svmhmm
from hingeline.data.svmlight import read_svmlight as read_svmlight
from hingeline.data.svmlight import write_multilabel as write_multilabel
from hingeline.data.svmlight import write_svmhmm as write_svmhmm, write_svmlight as write_svmlight
from hingeline.data.text import ParseError as ParseError, atomic_text as atomic_text
from hingeline.data.text import open_text as open_text
from hingeline.data.trees import Tree as Tree, iter_trees as iter_trees, read_trees as read_trees
from hingeline.data.trees import write_trees as write_trees
