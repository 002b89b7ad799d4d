"""Graph problems: NP-hard ones with proven optima, polynomial ones, and the questions of GraphWiz
and NLGraph.

One file a task; `instance` has the payload layout, `answers` the reading of responses, `solvers`
the exact solvers.
"""
