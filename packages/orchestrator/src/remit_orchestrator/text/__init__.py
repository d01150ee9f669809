"""What texts say, read without a model: numbers, dates, clauses, conflicts, summaries, intent."""
