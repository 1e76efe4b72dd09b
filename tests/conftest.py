"""What holds for all tests."""

from support import effort

effort.load_profile()
