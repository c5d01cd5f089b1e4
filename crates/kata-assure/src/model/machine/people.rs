//! What people do to the cluster: the user edits the KataConfig and the selection, and an admin removes
//! things by hand. What it leads to is the business of the other moves.

use super::{Action, Damage, did, node};
use crate::model::world::{KataConfig, World};

pub(super) fn edit(world: &mut World, action: Action) -> Option<()> {
    let config = &mut world.config;
    match action {
        Action::Create => {
            did(!config.exists)?;
            let uid = (config.uid + 1) % 8;
            *config = KataConfig { exists: true, uid, ..KataConfig::default() };
        }
        Action::Delete => {
            did(config.exists && !config.deleting)?;
            config.deleting = true;
            world.settle_config();
        }
        Action::Debug => {
            did(config.exists)?;
            config.debug = !config.debug;
        }
        Action::Select(index) => {
            let node = node(world, index)?;
            node.wanted = !node.wanted;
        }
        _ => return None,
    }
    Some(())
}

pub(super) fn remove(world: &mut World, damage: Damage, lingers: bool) -> Option<()> {
    match damage {
        Damage::Pool => {
            did(world.pool.object.exists())?;
            world.delete_pool(lingers);
            world.by_hand = true;
        }
        Damage::MachineConfig => {
            did(world.machine_config.exists())?;
            world.machine_config.delete(lingers);
            world.by_hand = true;
        }
        Damage::Class => {
            did(world.class.exists())?;
            world.class.delete(lingers);
        }
        Damage::Verified(index) => {
            let node = node(world, index)?;
            did(std::mem::take(&mut node.verified))?;
        }
        Damage::Role(index) => {
            let node = node(world, index)?;
            // An admin who takes the label from under a pod by hand kills the pod; the operator does not.
            did(!node.pod && std::mem::take(&mut node.role))?;
        }
        Damage::Record(index) => {
            let node = node(world, index)?;
            did(std::mem::take(&mut node.record))?;
        }
    }
    Some(())
}
