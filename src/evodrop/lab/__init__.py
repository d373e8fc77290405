"""The laboratory: dropouts compared on real data, and the paper's figures run again (extra ``lab``). Use the command.

===============  ==================================================================================================
``cli``          the command ``evodrop``: compare, reproduce, report, theory, data
``methods``      what can be compared; ``networks`` the paper's networks with any of them
``data``         data sets: files become arrays
``panels``       what is compared and how, as data
``run``          one training run as frozen data, its records and its result
``training``     a stream of records, of a network or of a linear model
``store``        the folder of a run: its records survive being killed
``runner``       many runs side by side, and their progress
``experiment``   a user's question as a panel; a panel carried out in a folder, from the first run to the report
``curves``       the records of a run as arrays, checked
``summary``      errors, times and changes with their intervals; ``claims`` and ``verdicts`` judge the paper by them
``report``       what was found, in sentences and tables, on the terminal and on a page; ``figures`` in pictures
===============  ==================================================================================================
"""
