//! No code: a list of dependencies with the features that the whole workspace needs of them.
//!
//! Cargo compiles a crate once for each set of features. The program, the
//! Python module and the tests are built one after another; each needed a slightly different
//! set of features of some small crates, so that these and their dependents, such as Arrow, were
//! compiled three times. Through this crate, the program and the Python module need the same set.
