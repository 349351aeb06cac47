//! Nothing: the live tests are in `e2e/`, a test target of its own, and a package must have a library or a program.
