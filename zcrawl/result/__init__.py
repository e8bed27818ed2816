"""Step 10: from results to one commit.

`receive` puts the results of each worker into their sequence; `plan` computes the change
for each result that the leader asks the store to commit.

Pure; a part of the leader. Imported by master. Start with `plan`.
"""
