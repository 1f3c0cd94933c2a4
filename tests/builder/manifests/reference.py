"""Stands in for a reference: only the manifests are read in this test."""
