//! The back end for clusters without the Machine Config Operator: short Jobs change the nodes.
//!
//! It returns an [`Assessment`](crate::assessment::Assessment). Its only memory is the KataNodes and the
//! Jobs that are not recorded there yet; see [`record`].

mod assess;
mod candidates;
mod changes;
mod cluster;
mod desired;
mod due;
pub(crate) mod job_body;
mod node;
mod payload;
mod provided;
mod record;
mod removal;
mod rollout;
mod take_over;

pub(crate) use assess::{assess, jobs_by_node};
pub(crate) use node::is_claimed;
pub(crate) use provided::has_operator_labels;
pub(crate) use record::{JobsOfNode, START_GRACE};
pub use take_over::{runtimes_to_add, take_over_obstacle};
