//! The steps that install Kata on the node, and look at what that brought.

use kata_api::conditions;
use serde_json::Value;

use super::belongings::{self, NAME};
use super::course::{Course, Stop, until};
use super::plan::Plan;
use super::quietly;
use crate::Context;
use crate::api::Scope;
use crate::cluster::{Kata, operator_quietly, version};
use crate::commands::{install, wait};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::resource::{NODES, POOLS, RUNTIME_CLASSES};

impl Course<'_> {
    /// Installs Kata on the node; whether it is ready.
    pub(super) async fn install(
        &mut self,
        plan: &Plan,
        context: &mut Context<'_, '_>,
    ) -> Result<bool, Stop> {
        self.begin("install", format!("Install Kata on {}", self.node), context);
        let is_openshift = context.api.serves(POOLS).await?;
        self.environment.platform =
            if is_openshift { "openshift" } else { "kubernetes" }.to_owned();
        self.environment.kubernetes = version(&context.api).await?.git_version;
        belongings::begin(self.node, plan.with_operator, context).await?;
        let interrupt = context.interrupt.clone();
        let (installed, said) =
            quietly(context, interrupt, async |context: &mut Context<'_, '_>| {
                install::run(&plan.install, context).await
            })
            .await;
        match installed? {
            Exit::Fine => {}
            Exit::Interrupted => return Err(Stop::Interrupted),
            _ => {
                self.expect("the installation begins", said, false);
                return Ok(false);
            }
        }
        let exit = self.wait(wait::Wanted::Ready, context).await?;
        let kata = Kata::read(&context.api).await?;
        let status = kata.active().and_then(|config| config.status.as_ref());
        let ready = status
            .and_then(|status| status.conditions.iter().find(|it| it.type_ == conditions::READY));
        let seen = ready.map_or_else(
            || "it says nothing".to_owned(),
            |ready| format!("Ready={} {}: {}", ready.status, ready.reason, ready.message),
        );
        self.expect(format!("KataConfig {NAME} is Ready"), seen, exit == Exit::Fine);
        let host = self.host(context).await?;
        self.environment.kata = host.and_then(|host| host.kata_version.clone());
        let deployment = operator_quietly(&context.api).await?.known().flatten();
        self.environment.operator_image =
            deployment.and_then(|deployment| deployment.image().map(str::to_owned));
        Ok(exit == Exit::Fine)
    }

    /// Looks at the RuntimeClass and the nodes; returns the class.
    pub(super) async fn look_around(
        &mut self,
        context: &mut Context<'_, '_>,
    ) -> Result<Value, Stop> {
        self.begin("class", "Look at the RuntimeClass and the nodes".to_owned(), context);
        let kata = Kata::read(&context.api).await?;
        let name = kata.runtimes().first().map_or_else(|| "kata".to_owned(), |it| it.name.clone());
        let class = context.api.get::<Value>(RUNTIME_CLASSES, None, &name).await?.known().flatten();
        let class = class.unwrap_or_default();
        let handler = class["handler"].as_str().unwrap_or_default().to_owned();
        let overhead = &class["overhead"]["podFixed"];
        self.expect(
            format!("RuntimeClass {name} has a handler and an overhead"),
            format!("handler {handler:?}, overhead {}", amounts(overhead)),
            !handler.is_empty() && overhead.is_object(),
        );
        let nodes = context.api.list::<Value>(NODES, Scope::default()).await?;
        let selector = class["scheduling"]["nodeSelector"].as_object();
        let is_selected = |node: &&Value| {
            let labels = &node["metadata"]["labels"];
            selector.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
        };
        let selected = nodes.items().iter().filter(is_selected);
        let selected: Vec<&str> =
            selected.filter_map(|node| node["metadata"]["name"].as_str()).collect();
        let seen = human::list(&selected, 5);
        self.expect(format!("it selects node {} alone", self.node), seen, selected == [self.node]);
        self.look_for_handler(&handler, context).await?;
        Ok(class)
    }

    async fn look_for_handler(
        &mut self,
        handler: &str,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        let read = async |context: &Context<'_, '_>| {
            let node = context.api.get::<Value>(NODES, None, self.node).await?.known().flatten();
            let handlers = node.unwrap_or_default()["status"]["runtimeHandlers"].take();
            let names = handlers.as_array().map(|handlers| {
                let names = handlers.iter().filter_map(|handler| handler["name"].as_str());
                // The default one has no name.
                let names: Vec<String> =
                    names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
                names
            });
            Ok::<_, Failure>(names)
        };
        // The kubelet reports it up to twenty seconds after the restart.
        let what = format!("the kubelet to report handler {handler}");
        let found = until(&what, context, async |context| match read(context).await? {
            Some(names) if !names.iter().any(|name| name == handler) => Ok(None),
            names => Ok(Some(names)),
        })
        .await?;
        let expected = format!("the kubelet reports handler {handler}");
        match found {
            Some(Some(names)) => self.expect(expected, human::list(&names, 10), true),
            Some(None) => self.skip(expected, "it reports no handlers at all"),
            None => {
                let names = read(context).await?.unwrap_or_default();
                self.expect(expected, human::list(&names, 10), false);
            }
        }
        Ok(())
    }
}

/// Quantities as `cpu 250m, memory 350Mi`.
pub(super) fn amounts(quantities: &Value) -> String {
    let all = quantities.as_object().into_iter().flatten();
    let all: Vec<String> = all
        .map(|(name, amount)| format!("{name} {}", amount.as_str().unwrap_or_default()))
        .collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
