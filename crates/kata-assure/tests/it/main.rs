//! The tests of kata-assure.

mod model;
