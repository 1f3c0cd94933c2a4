// Stands in for a source: only the manifest is read in this test.
