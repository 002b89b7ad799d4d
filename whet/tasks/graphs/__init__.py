"""Graph problems: ten with a best answer, and the questions of GraphWiz and NLGraph.

`task` grades the ten, described in `problems` and `molecules`; `numbered` asks and grades the
questions of `questions`; `paths` and `subgraphs` have the exact solvers.
"""
