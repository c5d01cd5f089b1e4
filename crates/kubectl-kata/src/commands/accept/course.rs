//! The steps of a proof, in their order, and what each expects. Whatever happens, the last ones remove what the others made.

use std::time::Duration;

use kata_api::probe::ProbeFacts;
use kata_api::sandbox_facts::ProcessRole;
use kata_api::{conditions, names};
use kata_manifests::manifests;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::belongings::{self, Belongings, Extent, NAME, undisturbed};
use super::inventory::Inventory;
use super::{aside, quietly};
use crate::Context;
use crate::api::{Scope, Trouble};
use crate::arguments::{AcceptArguments, InstallArguments, VerifyArguments};
use crate::cluster::{Kata, operator_quietly, version};
use crate::commands::{install, verify, wait};
use crate::document::{Environment, Fact, FactResult, SignalVerdict, Step, Verdict, VerifyResult};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::resource::{KATA_CONFIGS, NODES, PODS, POOLS, RUNTIME_CLASSES};
use crate::settings::Settings;

/// The pods.
const SANDBOX: &str = "sandbox";
const ORDINARY: &str = "ordinary";
const ELSEWHERE: &str = "elsewhere";
/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long pods may take to start, and the API to show what was written.
const SOON: Duration = Duration::from_mins(5);
/// How long after a removal the cluster is recorded.
const SETTLE: Duration = Duration::from_secs(30);
/// How much of a signal is shown.
const SIGNAL: usize = 40;
/// How many differences are named.
const SHOWN: usize = 20;

/// Why the steps end before the last one.
enum Stop {
    Interrupted,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// A proof while it runs.
pub(super) struct Course<'a> {
    node: &'a str,
    arguments: &'a AcceptArguments,
    install: &'a InstallArguments,
    extent: Extent,
    begun: Instant,
    pub(super) environment: Environment,
    pub(super) steps: Vec<Step>,
}

impl<'a> Course<'a> {
    pub(super) fn new(
        node: &'a str,
        object: &Value,
        arguments: &'a AcceptArguments,
        install: &'a InstallArguments,
        extent: Extent,
    ) -> Self {
        let info = |field: &str| {
            object["status"]["nodeInfo"][field].as_str().unwrap_or_default().to_owned()
        };
        let environment = Environment {
            system: info("osImage"),
            kernel: info("kernelVersion"),
            architecture: info("architecture"),
            container_runtime: info("containerRuntimeVersion"),
            plugin: crate::VERSION,
            ..Environment::default()
        };
        let begun = Instant::now();
        Self { node, arguments, install, extent, begun, environment, steps: Vec::new() }
    }

    /// Makes all steps; whether the user ended them. What was made is removed all the same.
    ///
    /// # Errors
    /// If nothing was begun, or what was made cannot be removed.
    pub(super) async fn run(
        &mut self,
        earlier: &Belongings,
        context: &mut Context<'_, '_>,
    ) -> Result<bool, Failure> {
        if !earlier.is_empty() {
            self.begin("earlier", "Remove what an earlier run left".to_owned(), context)?;
            earlier.remove(self.arguments.timeout, context).await?;
            self.expect("what an earlier run left is gone", "it is", true);
        }
        self.begin("before", "Record what is there".to_owned(), context)?;
        let mut before = Inventory::read(&context.api, self.node).await?;
        if !earlier.is_empty() {
            // The kubelet reports a little later that a handler is gone.
            tokio::time::sleep_until(Instant::now() + SETTLE).await;
            before = Inventory::read(&context.api, self.node).await?;
        }
        let count = human::count(before.len(), "thing");
        self.expect("objects and nodes are recorded", count, before.len() > 0);
        let stop = Box::pin(self.prove(context)).await.err();
        if let Some(Stop::Failed(failure)) = &stop {
            self.expect("the step can be made", failure.chain(), false);
        }
        let is_interrupted = matches!(stop, Some(Stop::Interrupted));
        if is_interrupted {
            let text = "interrupted: removing what was made; after a second interrupt it stays, and the next run removes it";
            context.printer.say(&context.marked(text))?;
        }
        undisturbed(context, async |context: &mut Context<'_, '_>| {
            self.remove_all(context).await?;
            self.compare(&before, context).await
        })
        .await?;
        self.end();
        Ok(is_interrupted)
    }

    async fn prove(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        // On the heap: together the steps would be larger than the stack of a thread.
        if !Box::pin(self.install(context)).await? {
            return Ok(());
        }
        let class = Box::pin(self.look_around(context)).await?;
        Box::pin(self.run_pods(&class, context)).await?;
        Box::pin(self.verify(context)).await?;
        Box::pin(self.verify_host(context)).await?;
        Box::pin(self.change_settings(context)).await?;
        Box::pin(self.change_payload(context)).await?;
        Box::pin(self.delete_blocked(context)).await?;
        Box::pin(self.delete(context)).await
    }

    fn begin(
        &mut self,
        id: &'static str,
        title: String,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Failure> {
        self.end();
        context.printer.say(&context.marked(&format!("{}. {title}", self.steps.len() + 1)))?;
        self.steps.push(Step { id, title, seconds: 0.0, facts: Vec::new() });
        Ok(())
    }

    fn end(&mut self) {
        if let Some(step) = self.steps.last_mut() {
            step.seconds = self.begun.elapsed().as_secs_f64();
        }
        self.begun = Instant::now();
    }

    fn fact(&mut self, expected: impl Into<String>, seen: impl Into<String>, result: FactResult) {
        let fact = Fact { expected: expected.into(), seen: seen.into(), result };
        if let Some(step) = self.steps.last_mut() {
            step.facts.push(fact);
        }
    }

    fn expect(&mut self, expected: impl Into<String>, seen: impl Into<String>, holds: bool) {
        self.fact(expected, seen, if holds { FactResult::Held } else { FactResult::Failed });
    }

    fn skip(&mut self, expected: impl Into<String>, why: impl Into<String>) {
        self.fact(expected, why, FactResult::Skipped);
    }

    /// Installs Kata on the node; whether it is ready.
    async fn install(&mut self, context: &mut Context<'_, '_>) -> Result<bool, Stop> {
        self.begin("install", format!("Install Kata on {}", self.node), context)?;
        let api = &context.api;
        let is_openshift = api.serves(POOLS).await?;
        self.environment.platform =
            if is_openshift { "openshift" } else { "kubernetes" }.to_owned();
        self.environment.kubernetes = version(api).await?.git_version;
        // By the label the next run finds what this one made, and so it comes first.
        belongings::label(self.node, Some(self.extent.value()), context).await?;
        let install = self.install;
        let interrupt = context.interrupt.clone();
        let (installed, said) =
            quietly(context, interrupt, async |context: &mut Context<'_, '_>| {
                install::run(install, context).await
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
        let host = kata.nodes.items().iter().find(|node| node.spec.node_name == self.node);
        let host = host.and_then(|node| node.status.as_ref()?.host.clone());
        self.environment.kata = host.and_then(|host| host.kata_version.clone());
        let deployment = operator_quietly(&context.api).await?.known().flatten();
        self.environment.operator_image =
            deployment.and_then(|deployment| deployment.image().map(str::to_owned));
        Ok(exit == Exit::Fine)
    }

    /// Waits, and shows how far it is.
    async fn wait(
        &self,
        wanted: wait::Wanted,
        context: &mut Context<'_, '_>,
    ) -> Result<Exit, Stop> {
        let (timeout, interrupt) = (self.arguments.timeout, context.interrupt.clone());
        let exit = aside(context, interrupt, async |context: &mut Context<'_, '_>| {
            wait::until(&wanted, timeout, context).await
        })
        .await?;
        if exit == Exit::Interrupted { Err(Stop::Interrupted) } else { Ok(exit) }
    }

    /// Looks at the RuntimeClass and the nodes; returns the class.
    async fn look_around(&mut self, context: &mut Context<'_, '_>) -> Result<Value, Stop> {
        self.begin("class", "Look at the RuntimeClass and the nodes".to_owned(), context)?;
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
        let selector = &class["scheduling"]["nodeSelector"];
        let selected: Vec<&str> = nodes
            .items()
            .iter()
            .filter(|node| {
                selector.as_object().is_some_and(|wanted| {
                    wanted.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value)
                })
            })
            .filter_map(|node| node["metadata"]["name"].as_str())
            .collect();
        self.expect(
            format!("it selects node {} alone", self.node),
            human::list(&selected, 5),
            selected == [self.node],
        );
        let node = nodes.items().iter().find(|node| node["metadata"]["name"] == self.node);
        let handlers = node.and_then(|node| node["status"]["runtimeHandlers"].as_array());
        let expected = "the kubelet reports the handler";
        match handlers {
            Some(handlers) => {
                let names = handlers.iter().filter_map(|handler| handler["name"].as_str());
                // The default one has no name.
                let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
                self.expect(expected, human::list(&names, 10), names.contains(&&*handler));
            }
            None => self.skip(expected, "it reports no handlers at all"),
        }
        Ok(class)
    }

    async fn run_pods(&mut self, class: &Value, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        self.begin("pods", "Run a sandboxed and an ordinary pod".to_owned(), context)?;
        belongings::create_namespace(context).await?;
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        let nodes = context.api.list::<Value>(NODES, Scope::default()).await?;
        let names = nodes.items().iter().filter_map(|node| node["metadata"]["name"].as_str());
        let other = names.into_iter().find(|name| *name != self.node);
        let image = self.environment.operator_image.clone();
        let image = image.as_deref().unwrap_or(manifests::UNPUBLISHED);
        let pods = [
            Some(pod(SANDBOX, image, Some(name), None)),
            Some(pod(ORDINARY, image, None, Some(self.node))),
            other.map(|other| pod(ELSEWHERE, image, Some(name), Some(other))),
        ];
        for pod in pods.iter().flatten() {
            belongings::create_pod(context, pod).await?;
        }
        for pod in [SANDBOX, ORDINARY] {
            let found = until(SOON, context, async || {
                let found = read_pod(pod, context).await?;
                Ok(found.filter(|found| found["status"]["phase"] == "Running"))
            })
            .await?;
            let place = found.as_ref().and_then(|found| found["spec"]["nodeName"].as_str());
            let seen = match place {
                Some(node) => format!("it runs on {node}"),
                None => describe(read_pod(pod, context).await?.as_ref()),
            };
            self.expect(format!("pod {pod} runs on {}", self.node), seen, place == Some(self.node));
        }
        let node = context.api.get::<Value>(NODES, None, self.node).await?.known().flatten();
        let node = node.unwrap_or_default()["status"]["nodeInfo"]["bootID"].take();
        for (pod, is_own) in [(SANDBOX, true), (ORDINARY, false)] {
            let boot_id = until(SOON, context, async || boot_id(pod, context).await).await?;
            let boot_id = boot_id.unwrap_or_else(|| "no answer".to_owned());
            let expected = if is_own { "a boot ID of its own" } else { "the node's boot ID" };
            let holds = boot_id != "no answer" && (node == *boot_id) != is_own;
            let node = node.as_str().unwrap_or_default();
            let seen = format!(
                "{}, the node has {}",
                verify::short(&boot_id, SIGNAL),
                verify::short(node, SIGNAL)
            );
            self.expect(format!("pod {pod} has {expected}"), seen, holds);
        }
        let sandbox = read_pod(SANDBOX, context).await?.unwrap_or_default();
        let (has, wanted) = (&sandbox["spec"]["overhead"], &class["overhead"]["podFixed"]);
        self.expect("pod sandbox has the overhead of its class", amounts(has), has == wanted);
        let expected = "a sandboxed pod for another node stays Pending";
        if other.is_none() {
            self.skip(expected, "there is no other node");
            return Ok(());
        }
        let unschedulable = until(SOON, context, async || {
            let found = read_pod(ELSEWHERE, context).await?;
            Ok(found.filter(|found| {
                let conditions = found["status"]["conditions"].as_array();
                conditions.into_iter().flatten().any(|it| it["reason"] == "Unschedulable")
            }))
        })
        .await?;
        let seen = describe(read_pod(ELSEWHERE, context).await?.as_ref());
        self.expect(expected, seen, unschedulable.is_some());
        let path = PODS.object(Some(NAME), ELSEWHERE);
        Ok(belongings::delete(context, "pod", &path).await?)
    }

    async fn verify(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        self.begin(
            "verify",
            "Compare a sandbox with an ordinary pod and the node".to_owned(),
            context,
        )?;
        let arguments =
            VerifyArguments { node: vec![self.node.to_owned()], ..VerifyArguments::default() };
        let arguments = VerifyArguments { timeout: SOON, ..arguments };
        let settings = self.probing(context);
        let verdict = self.verdict(&arguments, settings, context).await?;
        for signal in &verdict.signals {
            let [sandbox, pod, node] = [&signal.sandboxed, &signal.regular, &signal.node]
                .map(|text| verify::short(text, SIGNAL));
            let seen = format!("{} (sandbox {sandbox}, pod {pod}, node {node})", signal.meaning);
            let result = match signal.verdict {
                SignalVerdict::Pass => FactResult::Held,
                SignalVerdict::Fail => FactResult::Failed,
                SignalVerdict::Neutral => FactResult::Skipped,
            };
            self.fact(format!("the {} is that of a virtual machine", signal.name), seen, result);
        }
        self.isolated("a sandboxed pod runs on a kernel of its own", &verdict);
        Ok(())
    }

    fn isolated(&mut self, expected: &str, verdict: &Verdict) {
        let problems: Vec<&str> =
            verdict.problems.iter().map(|problem| problem.message.as_str()).collect();
        let (result, seen) = match verdict.result {
            VerifyResult::Isolated => (FactResult::Held, "it does"),
            VerifyResult::NotIsolated => (FactResult::Failed, "it shares the node's"),
            VerifyResult::ProbeFailed => (FactResult::Failed, "the probe did not run"),
            VerifyResult::Inconclusive => (FactResult::Skipped, "it is not known"),
        };
        let seen = [&[seen], problems.as_slice()].concat().join("; ");
        self.fact(expected, seen, result);
    }

    /// The image has no program that `verify` could ask in the pod, so what counts here is what the node says.
    async fn verify_host(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        self.begin("host", "Look at the sandbox from the node".to_owned(), context)?;
        let arguments = VerifyArguments {
            target: Some(format!("pod/{SANDBOX}")),
            host: true,
            timeout: SOON,
            ..VerifyArguments::default()
        };
        let settings = Settings { namespace: Some(NAME.to_owned()), ..context.settings.clone() };
        let verdict = self.verdict(&arguments, settings, context).await?;
        let processes = verdict.host.iter().flat_map(|host| &host.processes);
        let of = |role: ProcessRole| {
            let found = processes.clone().filter(move |process| process.role == role);
            found.map(|process| process.program.clone()).collect::<Vec<_>>()
        };
        let (shims, vmms) = (of(ProcessRole::Shim), of(ProcessRole::Vmm));
        if verdict.host.is_none() {
            let why = verdict.problems.last().map_or("no reason", |problem| &problem.message);
            self.expect("the node can be looked at", why, false);
        }
        self.environment.vmm = vmms.first().cloned();
        let expected = "the node runs a shim for the sandbox";
        self.expect(expected, human::list(&shims, 3), !shims.is_empty());
        let expected = "the node runs a virtual machine for the sandbox";
        if vmms.is_empty() && !shims.is_empty() {
            self.skip(expected, "no process of its own, as with Dragonball");
        } else {
            self.expect(expected, human::list(&vmms, 3), !vmms.is_empty());
        }
        Ok(())
    }

    /// Where probes run: they go with the namespace even if this program is killed. OpenShift lets a Job in it have no user's ID
    /// of its own.
    fn probing(&self, context: &Context<'_, '_>) -> Settings {
        let mut settings = context.settings.clone();
        if self.environment.platform == "kubernetes" {
            settings.namespace = Some(NAME.to_owned());
        }
        settings
    }

    async fn verdict(
        &self,
        arguments: &VerifyArguments,
        settings: Settings,
        context: &mut Context<'_, '_>,
    ) -> Result<Verdict, Stop> {
        let mut nowhere = std::io::sink();
        let (api, place) = (std::sync::Arc::clone(&context.api), context.place.clone());
        let interrupt = context.interrupt.clone();
        let mut printer = context.printer.aside(&mut nowhere);
        let mut inner =
            Context { api, place, settings: &settings, printer: &mut printer, interrupt };
        let kata = Kata::read(&inner.api).await?;
        let verdicts = Box::pin(verify::verdicts(arguments, &kata, &mut inner)).await?;
        let verdict = verdicts.ok_or(Stop::Interrupted)?.into_iter().next();
        verdict.ok_or_else(|| {
            Stop::Failed(Failure::NotFound(format!("there is no verdict about {}", self.node)))
        })
    }

    /// Another class and another log level, beside the running sandbox.
    async fn change_settings(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        self.begin("second-class", "Add a second class and another log level".to_owned(), context)?;
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
        let arguments = VerifyArguments {
            node: vec![self.node.to_owned()],
            runtime_class: Some(NAME.to_owned()),
            timeout: SOON,
            ..VerifyArguments::default()
        };
        let settings = self.probing(context);
        let verdict = self.verdict(&arguments, settings, context).await?;
        self.isolated("a pod of it runs on a kernel of its own", &verdict);
        Ok(())
    }

    /// Another payload and back, beside the running sandbox.
    async fn change_payload(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        let Some(image) = &self.arguments.second_payload_image else { return Ok(()) };
        self.begin("payload", format!("Upgrade to {image} and back"), context)?;
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
        let kata = Kata::read(&context.api).await?;
        let host = kata.nodes.items().iter().find(|node| node.spec.node_name == self.node);
        let host = host.and_then(|node| node.status.as_ref()?.host.clone());
        let text = |text: Option<&String>| text.cloned().unwrap_or_else(|| "unknown".to_owned());
        Ok(host.map_or_else(
            || "nothing".to_owned(),
            |host| {
                let digest = text(host.payload_digest.as_ref());
                format!(
                    "Kata {} ({})",
                    text(host.kata_version.as_ref()),
                    verify::short(&digest, SIGNAL)
                )
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
        let pod = read_pod(SANDBOX, context).await?.unwrap_or_default();
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        let holds = pod["status"]["phase"] == "Running" && *restarts == 0;
        let seen = format!("{}, {restarts} restarts", describe(Some(&pod)));
        self.expect("the sandboxed pod was not disturbed", seen, holds);
        Ok(exit == Exit::Fine)
    }

    async fn delete_blocked(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        let title = "Delete the KataConfig while the sandboxed pod runs".to_owned();
        self.begin("blocked", title, context)?;
        belongings::delete(context, "KataConfig", &KATA_CONFIGS.object(None, NAME)).await?;
        let pod = format!("{NAME}/{SANDBOX}");
        let message = until(SOON, context, async || {
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
        let phase = read_pod(SANDBOX, context).await?.unwrap_or_default();
        self.expect(
            "the pod runs on",
            describe(Some(&phase)),
            phase["status"]["phase"] == "Running",
        );
        Ok(())
    }

    async fn delete(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        self.begin("removal", "Delete the pod; the removal goes on by itself".to_owned(), context)?;
        belongings::delete(context, "pod", &PODS.object(Some(NAME), SANDBOX)).await?;
        let exit = self.wait(wait::Wanted::Deleted(Some(NAME.to_owned())), context).await?;
        let seen = if exit == Exit::Fine { "it is" } else { "it is still there" };
        self.expect(format!("KataConfig {NAME} is gone"), seen, exit == Exit::Fine);
        let expected = "the ordinary pod was not disturbed";
        if self.environment.platform == "openshift" {
            self.skip(expected, "the Machine Config Operator drains the node and reboots it");
            return Ok(());
        }
        let pod = read_pod(ORDINARY, context).await?.unwrap_or_default();
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        let holds = pod["status"]["phase"] == "Running" && *restarts == 0;
        self.expect(expected, format!("{}, {restarts} restarts", describe(Some(&pod))), holds);
        Ok(())
    }

    async fn remove_all(&mut self, context: &mut Context<'_, '_>) -> Result<(), Failure> {
        self.begin("cleanup", "Remove what this command made".to_owned(), context)?;
        let left = Belongings::find(context).await?;
        left.remove(self.arguments.timeout, context).await?;
        let left = Belongings::find(context).await?;
        self.expect("nothing of this command is left", "nothing is", left.is_empty());
        Ok(())
    }

    async fn compare(
        &mut self,
        before: &Inventory,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Failure> {
        self.begin("compare", "Compare with what was there before".to_owned(), context)?;
        let end = Instant::now() + SOON;
        // What others remove with our objects goes a little later.
        let differences = loop {
            let after = Inventory::read(&context.api, self.node).await?;
            let differences = before.differences(&after);
            if differences.is_empty() || Instant::now() >= end {
                break differences;
            }
            tokio::time::sleep_until(Instant::now() + LOOK).await;
        };
        let expected = format!("all is as before ({} compared)", before.len());
        if differences.is_empty() {
            self.expect(expected, "it is", true);
        }
        for difference in differences.iter().take(SHOWN) {
            self.expect("all is as before", difference, false);
        }
        if differences.len() > SHOWN {
            let more = format!("{} more differences", differences.len() - SHOWN);
            self.expect("all is as before", more, false);
        }
        Ok(())
    }
}

/// Looks until something is there; `None` past the limit.
async fn until<T>(
    limit: Duration,
    context: &Context<'_, '_>,
    look: impl AsyncFn() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Stop> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(Some(found));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        tokio::select! {
            () = tokio::time::sleep_until(Instant::now() + LOOK) => {}
            () = context.interrupted() => return Err(Stop::Interrupted),
        }
    }
}

async fn read_pod(name: &str, context: &Context<'_, '_>) -> Result<Option<Value>, Failure> {
    Ok(context.api.get::<Value>(PODS, Some(NAME), name).await?.known().flatten())
}

/// The boot ID that a pod has printed when it began.
async fn boot_id(name: &str, context: &Context<'_, '_>) -> Result<Option<String>, Failure> {
    let path = format!("{}/log", PODS.object(Some(NAME), name));
    match context.api.text(&format!("read the log of pod {name}"), &path).await {
        Ok(text) => {
            let facts =
                text.lines().filter_map(|line| serde_json::from_str::<ProbeFacts>(line).ok());
            Ok(facts.map(|facts| facts.boot_id).find(|boot_id| !boot_id.is_empty()))
        }
        // It has not started, or the node is away for a moment.
        Err(Trouble::Status(status)) if status.code != 403 => Ok(None),
        Err(trouble) => Err(trouble.failure(&format!("read the log of pod {name}"))),
    }
}

/// The state of a pod in a few words.
fn describe(pod: Option<&Value>) -> String {
    let Some(pod) = pod else { return "there is no such pod".to_owned() };
    let phase = pod["status"]["phase"].as_str().unwrap_or("no phase").to_owned();
    let conditions = pod["status"]["conditions"].as_array();
    let why = conditions.into_iter().flatten().find_map(|condition| {
        (condition["status"] != "True").then(|| condition["message"].as_str()).flatten()
    });
    match why {
        Some(why) if phase != "Running" => format!("{phase}: {why}"),
        _ => phase,
    }
}

/// Quantities as `cpu 250m, memory 350Mi`.
fn amounts(quantities: &Value) -> String {
    let all = quantities.as_object().into_iter().flatten();
    let all: Vec<String> = all
        .map(|(name, amount)| format!("{name} {}", amount.as_str().unwrap_or_default()))
        .collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// A pod of the operator's image that does nothing for longer than the proof takes. A namespace with Pod Security `restricted`
/// takes it, and the user's ID is left to the image or to OpenShift.
fn pod(name: &str, image: &str, class: Option<&str>, node: Option<&str>) -> Value {
    let mut spec = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 0,
        // The node may be of the control plane.
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "main",
            "image": image,
            "command": ["kata-operator", "probe", "--hold", "86400"],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
            },
        }],
    });
    if let Some(class) = class {
        spec["runtimeClassName"] = json!(class);
    }
    if let Some(node) = node {
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node]},
            ]}],
        }}});
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAME, "labels": {names::ACCEPT_LABEL: "pod"}},
        "spec": spec,
    })
}
