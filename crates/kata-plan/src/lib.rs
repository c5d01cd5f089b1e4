//! The cluster decision of kata-operator.
