"""Step 10: from results to one commit.

`receive` puts the results of each worker into their sequence; `plan` decides what is to become of
each: the change that the leader asks the store to commit.

Pure; a part of the leader. Imported by master. Start with `plan`.
"""
