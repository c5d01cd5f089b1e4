//! The steps that ask whether a sandboxed pod is isolated: by what the pod sees, and by what runs on the node.

use kata_api::sandbox_facts::ProcessRole;

use super::belongings::NAME;
use super::course::{Course, SOON, Stop};
use super::pods::{SANDBOX, SHOWN};
use crate::Context;
use crate::arguments::VerifyArguments;
use crate::cluster::Kata;
use crate::commands::verify;
use crate::document::{FactResult, SignalVerdict, Verdict, VerifyResult};
use crate::failure::Failure;
use crate::human;
use crate::settings::Settings;

/// Where probes run on OpenShift, as those of `verify --host`: other projects give a pod the user's ID.
const OPENSHIFT_NAMESPACE: &str = "default";

impl Course<'_> {
    pub(super) async fn verify(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        let title = "Compare a sandbox with an ordinary pod and the node".to_owned();
        self.begin("verify", title, context);
        let verdict = self.probe(None, context).await?;
        for signal in &verdict.signals {
            let [sandbox, pod, node] = [&signal.sandboxed, &signal.regular, &signal.node]
                .map(|text| verify::short(text, SHOWN));
            let seen = format!("{} (sandbox {sandbox}, pod {pod}, node {node})", signal.meaning);
            let result = match signal.verdict {
                SignalVerdict::Pass => FactResult::Held,
                SignalVerdict::Fail => FactResult::Failed,
                SignalVerdict::Neutral => FactResult::Skipped,
            };
            self.fact(format!("the {} is that of a virtual machine", signal.name), seen, result);
        }
        self.expect_isolated("a sandboxed pod runs on a kernel of its own", &verdict);
        Ok(())
    }

    /// Probes of a class on the node, or of Kata's first one.
    pub(super) async fn probe(
        &self,
        class: Option<&str>,
        context: &mut Context<'_, '_>,
    ) -> Result<Verdict, Stop> {
        let arguments = VerifyArguments {
            node: vec![self.node.to_owned()],
            runtime_class: class.map(str::to_owned),
            timeout: SOON,
            ..VerifyArguments::default()
        };
        // In the namespace of the run they go with it even if this program is killed.
        let is_openshift = self.environment.platform == "openshift";
        let namespace = if is_openshift { OPENSHIFT_NAMESPACE } else { NAME };
        self.verdict(&arguments, namespace, context).await
    }

    /// Without an answer the main fact of a proof is missing.
    pub(super) fn expect_isolated(&mut self, expected: &str, verdict: &Verdict) {
        let seen = match verdict.result {
            VerifyResult::Isolated => "it does",
            VerifyResult::NotIsolated => "it shares the node's",
            VerifyResult::ProbeFailed => "the probe did not run",
            VerifyResult::Inconclusive => "it is not known",
        };
        let problems = verdict.problems.iter().map(|problem| problem.message.as_str());
        let seen: Vec<&str> = std::iter::once(seen).chain(problems).collect();
        self.expect(expected, seen.join("; "), verdict.result == VerifyResult::Isolated);
    }

    /// The image has no program that `verify` could ask in the pod, so what counts here is what the node says.
    pub(super) async fn verify_host(&mut self, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        self.begin("host", "Look at the sandbox from the node".to_owned(), context);
        let arguments = VerifyArguments {
            target: Some(format!("pod/{SANDBOX}")),
            host: true,
            timeout: SOON,
            ..VerifyArguments::default()
        };
        let verdict = self.verdict(&arguments, NAME, context).await?;
        let Some(host) = &verdict.host else {
            let why = verdict.problems.last().map_or("no reason", |problem| &problem.message);
            self.expect("the node can be looked at", why, false);
            return Ok(());
        };
        let of = |role: ProcessRole| {
            let found = host.processes.iter().filter(|process| process.role == role);
            found.map(|process| process.program.clone()).collect::<Vec<_>>()
        };
        let (shims, vmms) = (of(ProcessRole::Shim), of(ProcessRole::Vmm));
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

    async fn verdict(
        &self,
        arguments: &VerifyArguments,
        namespace: &str,
        context: &mut Context<'_, '_>,
    ) -> Result<Verdict, Stop> {
        let settings =
            Settings { namespace: Some(namespace.to_owned()), ..context.settings.clone() };
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
}
