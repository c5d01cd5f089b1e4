//! `kata-sim up`: the simulated cluster over HTTP, for stock kubectl and for operators in other processes.
//!
//! It listens on 127.0.0.1 only and writes nothing but the kubeconfig that it was told to write.

use std::path::Path;
use std::time::Instant;

use simcluster::cluster::write_kubeconfig;
use simcluster::topology::Layout;
use simcluster::world::Platform;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::UpArguments;
use crate::compose::{self, Shape};
use crate::{Failure, Outcome};

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn run(arguments: UpArguments) -> Result<Outcome, Failure> {
    let begin = Instant::now();
    // Installed first: a signal during the start must not leave a kubeconfig behind.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let layout = Layout {
        platform: arguments.platform,
        control_plane: arguments.control_plane,
        workers: if arguments.compact { 0 } else { arguments.workers },
        compact: arguments.compact,
        ..Layout::default()
    };
    let shape = Shape { layout: layout.clone(), speed: arguments.speed };
    let cluster = compose::cluster(&shape, compose::wall_clock())?;
    let address = cluster.serve(arguments.port).await.map_err(|error| {
        format!(
            "cannot serve on 127.0.0.1:{}: {error}; choose another --port, or 0 for a free one",
            arguments.port
        )
    })?;
    let operator = (!arguments.no_operator).then(|| compose::operator(&cluster));
    write_kubeconfig(&arguments.kubeconfig, address)
        .map_err(|error| format!("cannot write {}: {error}", arguments.kubeconfig.display()))?;
    announce(&arguments, &layout, &address.to_string(), begin.elapsed().as_secs_f64());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    if let Some(operator) = operator {
        operator.abort();
    }
    cluster.shut_down();
    remove_own_kubeconfig(&arguments.kubeconfig, &address.to_string());
    Ok(Outcome::Fine)
}

/// Takes the kubeconfig away if it is still ours: it points at nothing now.
fn remove_own_kubeconfig(path: &Path, address: &str) {
    let ours = std::fs::read_to_string(path).is_ok_and(|text| text.contains(address));
    if ours && let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(path = %path.display(), error = %error, "cannot remove the kubeconfig");
    }
}

#[expect(clippy::print_stdout, reason = "what the user starts the command for")]
fn announce(arguments: &UpArguments, layout: &Layout, address: &str, seconds: f64) {
    let kinds = match layout.platform {
        Platform::OpenShift => " + machineconfiguration.openshift.io",
        Platform::Kubernetes => "",
    };
    let file = arguments.kubeconfig.display();
    println!("API server  http://{address}    Kubernetes v1.34{kinds}    {seconds:.2}s");
    println!(
        "Nodes       {} control plane, {} workers (simulated, no VMs, no root, nothing downloaded)",
        layout.control_plane, layout.workers
    );
    if arguments.no_operator {
        println!("Operator    none; run: kata-operator run --kubeconfig {file}");
    } else {
        println!("Operator    running in this process, KataConfig CRD served");
    }
    println!("Kubeconfig  {file} (your ~/.kube/config was not touched)");
    println!(
        "Time        controllers, nodes and reboots are {} times faster than real",
        arguments.speed
    );
    let node = if arguments.compact { "control-plane-0" } else { "worker-0" };
    println!(
        "Try:  export KUBECONFIG={file}; kubectl label node {node} kata=true; \
         kubectl apply -f examples/kataconfig.yaml; kubectl get kataconfig -w"
    );
    println!(
        "SIMULATED: exec, uptime, cmdline and processes are models, not measurements.          Ctrl-C stops"
    );
}
