"""Fetches batches from leaders, and decodes their records for a consumer. Begin with fetcher.py."""
