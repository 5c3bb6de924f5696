"""Campaigns: planned, randomised, resumable measurements whose raw data are kept."""
