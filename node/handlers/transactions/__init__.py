"""The APIs of transactional producers, markers, and hanging transactions."""
