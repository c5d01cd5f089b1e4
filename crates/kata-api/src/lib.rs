//! The API of kata-operator.
