//! The steps that change the KataConfig beside a running sandbox, and delete it.

use kata_api::{conditions, names};
use serde_json::{Value, json};

use super::belongings::{self, NAME};
use super::course::{Course, Stop, until};
use super::pods::{ORDINARY, SANDBOX, describe, read_pod};
use crate::Context;
use crate::cluster::Kata;
use crate::commands::{verify, wait};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resource::{NODES, RUNTIME_CLASSES};

/// How much of a digest is shown.
const SHOWN: usize = 40;

impl Course<'_> {
    /// Another class and another log level.
    pub(super) async fn change_settings(
        &mut self,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        let title = "Add a second class and another log level".to_owned();
        self.begin("settings", title, context);
        if self.environment.platform == "openshift" {
            let expected = "the sandboxed pod runs on through a change";
            self.skip(expected, "each change reboots the node; a class is another MachineConfig");
            return Ok(());
        }
        let runtimes = json!([{"name": "kata"}, {"name": NAME, "shim": "qemu"}]);
        let spec = json!({"runtimes": runtimes, "logLevel": "debug"});
        if !self.change(spec, "the classes and the log level", context).await? {
            return Ok(());
        }
        let class = context.api.get::<Value>(RUNTIME_CLASSES, None, NAME).await?.known().flatten();
        let seen = class.as_ref().map_or_else(
            || "there is none".to_owned(),
            |class| format!("handler {}", class["handler"].as_str().unwrap_or_default()),
        );
        self.expect(format!("there is RuntimeClass {NAME}"), seen, class.is_some());
        let verdict = self.probe(Some(NAME), context).await?;
        self.expect_isolated("a pod of it runs on a kernel of its own", &verdict);
        Ok(())
    }

    /// Another payload and back.
    pub(super) async fn change_payload(
        &mut self,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        let Some(image) = &self.arguments.second_payload_image else { return Ok(()) };
        self.begin("payload", format!("Upgrade to {image} and back"), context);
        if self.environment.platform == "openshift" {
            let why = "on OpenShift Kata comes with the cluster's release";
            self.skip("the node has another payload", why);
            return Ok(());
        }
        let first = self.payload(context).await?;
        let spec = json!({"payload": {"image": image}});
        if !self.change(spec, "the payload", context).await? {
            return Ok(());
        }
        let second = self.payload(context).await?;
        let seen = format!("{first}, then {second}");
        self.expect("the node has another payload", seen, first != second);
        let payload = self.arguments.payload_image.as_ref().map(|image| json!({"image": image}));
        let spec = json!({"payload": payload});
        if self.change(spec, "the payload, back", context).await? {
            let last = self.payload(context).await?;
            self.expect("the node has the first payload again", &*last, last == first);
        }
        Ok(())
    }

    /// What the node has of Kata.
    async fn payload(&self, context: &Context<'_, '_>) -> Result<String, Failure> {
        let text = |text: Option<&String>| text.cloned().unwrap_or_else(|| "unknown".to_owned());
        Ok(self.host(context).await?.map_or_else(
            || "nothing".to_owned(),
            |host| {
                let digest = text(host.payload_digest.as_ref());
                let version = text(host.kata_version.as_ref());
                format!("Kata {version} ({})", verify::short(&digest, SHOWN))
            },
        ))
    }

    /// Changes the KataConfig, and waits; whether it is Ready again.
    async fn change(
        &mut self,
        spec: Value,
        what: &str,
        context: &mut Context<'_, '_>,
    ) -> Result<bool, Stop> {
        belongings::change(&spec, context).await?;
        let exit = self.wait(wait::Wanted::Ready, context).await?;
        let seen = if exit == Exit::Fine { "it is" } else { "it is not" };
        self.expect(format!("the KataConfig is Ready with {what}"), seen, exit == Exit::Fine);
        self.expect_undisturbed(SANDBOX, "the sandboxed pod was not disturbed", context).await?;
        Ok(exit == Exit::Fine)
    }

    /// Deletes the KataConfig while a sandboxed pod runs.
    pub(super) async fn delete_blocked(
        &mut self,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        let title = "Delete the KataConfig while the sandboxed pod runs".to_owned();
        self.begin("blocked", title, context);
        belongings::delete_config(context).await?;
        let pod = format!("{NAME}/{SANDBOX}");
        let message = until("the deletion to be blocked", context, async |context| {
            let kata = Kata::read(&context.api).await?;
            let status = kata.active().and_then(|config| config.status.clone());
            let blocked = status.and_then(|status| {
                let mut conditions = status.conditions.into_iter();
                conditions
                    .find(|it| it.type_ == conditions::DELETION_BLOCKED && it.status == "True")
            });
            Ok(blocked.map(|blocked| blocked.message))
        })
        .await?;
        let holds = message.as_ref().is_some_and(|message| message.contains(&pod));
        let seen = message.unwrap_or_else(|| "it is not blocked".to_owned());
        self.expect(format!("the deletion waits for pod {pod}"), seen, holds);
        let node = context.api.get::<Value>(NODES, None, self.node).await?.known().flatten();
        let label = node.map(|node| node["metadata"]["labels"][names::RUNTIME_LABEL].clone());
        let holds = label.as_ref().is_some_and(|label| label == names::RUNTIME_LABEL_VERIFIED);
        let seen = format!("{}={}", names::RUNTIME_LABEL, label.unwrap_or_default());
        self.expect("the node keeps Kata meanwhile", seen, holds);
        let sandbox = read_pod(SANDBOX, context).await?;
        let holds = sandbox.as_ref().is_some_and(|pod| pod["status"]["phase"] == "Running");
        self.expect("the pod runs on", describe(sandbox.as_ref()), holds);
        Ok(())
    }

    /// Deletes the pod that blocks it.
    pub(super) async fn delete(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        let title = "Delete the pod; the removal goes on by itself".to_owned();
        self.begin("removal", title, context);
        belongings::delete_pod(SANDBOX, context).await?;
        let exit = self.wait(wait::Wanted::Deleted(Some(NAME.to_owned())), context).await?;
        let seen = if exit == Exit::Fine { "it is" } else { "it is still there" };
        self.expect(format!("KataConfig {NAME} is gone"), seen, exit == Exit::Fine);
        let expected = "the ordinary pod was not disturbed";
        if self.environment.platform == "openshift" {
            self.skip(expected, "the Machine Config Operator drains the node and reboots it");
            return Ok(());
        }
        self.expect_undisturbed(ORDINARY, expected, context).await
    }
}
