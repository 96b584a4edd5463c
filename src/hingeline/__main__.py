"""``python -m hingeline`` is the command ``hingeline``."""

from hingeline.cli import main

if __name__ == "__main__":
    main()
