"""The laboratory: dropouts compared on real data, and the paper's figures run again (extra ``lab``). Use the command.

===============  ==================================================================================================
``cli``          the command ``evodrop``: compare, reproduce, report, theory, data
``methods``      what can be compared; ``networks`` the paper's networks with any of them
``data``         data sets: files become arrays
``panels``       what is compared and how, as data; ``compare`` makes a panel of a user's question
``run``          one training run as frozen data, its records and its result
``training``     a stream of records, of a network or of a linear model
``store``        the folder of a run: its records survive being killed; ``environment`` says where they were made
``runner``       many runs side by side; ``live`` shows their progress
``experiment``   a panel carried out in a folder, from the first run to the report
``curves``       the records of a run as arrays, checked; ``groups`` which runs belong together
``summary``      errors, times and changes with their intervals; ``claims`` and ``verdicts`` judge the paper by them
``tables``       what was found, in sentences and tables; ``figures`` in pictures; ``report`` on a page
===============  ==================================================================================================
"""
