"""Many runs, from a question to its report.

================  =============================================================================
``experiment``    a plan carried out in a folder, from the choice of step sizes to the report
``comparison``    ``evodrop compare``; ``rates`` tunes the rate of each method
``reproduction``  ``evodrop reproduce``
================  =============================================================================
"""
