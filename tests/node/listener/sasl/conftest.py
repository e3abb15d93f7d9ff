"""Skip the tests of OAUTHBEARER tokens without PyJWT (the extra `secure`)."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("jwt") else ["test_tokens.py"]
