//! The Machine Config Operator against timelines recorded from the real controllers, and its rules
//! one by one.

mod cluster;
mod recordings;
mod rules;
mod runtime_configs;
mod timeline;
mod whole;
