# The same entry points as `./check --help` lists, for those who use just.

# Everything that CI runs
ci:
    ./check

# Formatting, lints, docs, unit tests
quick:
    ./check quick

# Live tests, all or those whose names hold a word
live filter="":
    ./check live {{filter}}

# Live tests without overspill: all must pass
bare filter="":
    ./check bare {{filter}}

# Live tests without overspill, damaged on purpose: all must fail
broken filter="":
    ./check broken {{filter}}

# A tarball, a .deb and a wheel in target/packages
release:
    ./package

# ... each installed and tried in a fresh Debian (as root)
packages:
    ./check packages

# Random stores for so many seconds, every word checked
soak seconds="600":
    ./check soak {{seconds}}

# Random worlds in the simulator, every check on, from a seed until stopped (0) or so many of them
sim-soak seed="0" count="0":
    cargo run --release -p overspill -- sim soak --seed {{seed}} --count {{count}}
