//! No code: a list of dependencies with the features that the whole workspace needs of them.
//!
//! Cargo compiles a crate anew for each set of features that is asked of it. The program, the
//! Python module and the tests are built one after another; each asked for a slightly different
//! set of some small crates, and all that stands on these, Arrow among it, was compiled three
//! times. The program and the Python module depend on this crate, so that they ask for the same.
