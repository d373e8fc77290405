"""Many runs, from a question to its report.

================  ================================================================================
``laboratory``    runs side by side, each in its own folder; ``workers`` are the processes they are in
``live``          how they come along: a table that moves
``experiment``    a plan carried out in a folder, from the choice of step sizes to the report
``comparison``    ``evodrop compare``; ``rates`` tunes the rate of each method
``reproduction``  ``evodrop reproduce``; ``estimates`` tells how long it would take
================  ================================================================================
"""
