//! `kata-sim up`: the simulated cluster over HTTP, for stock kubectl and for operators in other processes.
//!
//! It listens on 127.0.0.1 only and writes nothing but the kubeconfig and, with `--data-dir`, the
//! state.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use simcluster::cluster::{Cluster, write_kubeconfig};
use simcluster::topology::Layout;
use simcluster::world::Platform;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::UpArguments;
use crate::compose::{self, OperatorOptions, Shape};
use crate::data_directory::DataDirectory;
use crate::{Failure, Outcome};

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn run(arguments: UpArguments) -> Result<Outcome, Failure> {
    let begin = Instant::now();
    // What the operator warns of is worth seeing; the rest would bury it.
    let log =
        tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        log.init();
    } else {
        log.with_ansi(false).init();
    }
    // Installed first: a signal during the start must not leave a kubeconfig behind.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let Start { cluster, layout, directory, resumed } = start(&arguments)?;
    let address = cluster.serve(arguments.port).await.map_err(|error| {
        format!(
            "cannot serve on 127.0.0.1:{}: {error}; choose another --port, or 0 for a free one",
            arguments.port
        )
    })?;
    let options = OperatorOptions {
        monitor_image: arguments.monitor_image.clone(),
        inspect_every: arguments.inspect_every,
        speed: Some(arguments.speed),
        clock_offset: arguments.clock_offset,
        leads: true,
    };
    let operator = if arguments.no_operator {
        None
    } else {
        let token = compose::install(&cluster, options.monitor_image.clone())?;
        Some(if arguments.rbac {
            compose::operator_with_token(&cluster, options, &token)?
        } else {
            compose::operator_with(&cluster, options)
        })
    };
    write_kubeconfig(&arguments.kubeconfig, address)
        .map_err(|error| format!("cannot write {}: {error}", arguments.kubeconfig.display()))?;
    announce(&arguments, &layout, &address.to_string(), begin.elapsed().as_secs_f64());
    if let Some(directory) = &directory {
        announce_state(directory, resumed);
    }
    announce_end();
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = keep(directory.as_ref(), &cluster, &layout) => {}
    }
    if let Some(operator) = operator {
        operator.abort();
    }
    let kept = directory.map_or(Ok(()), |directory| directory.save(&cluster, &layout));
    cluster.shut_down();
    remove_own_kubeconfig(&arguments.kubeconfig, &address.to_string());
    kept?;
    Ok(Outcome::Fine)
}

/// What is served.
struct Start {
    cluster: Cluster,
    layout: Layout,
    directory: Option<Arc<DataDirectory>>,
    /// The revision from which the cluster goes on, if it is not new.
    resumed: Option<u64>,
}

/// A new cluster, or the one that the data directory keeps.
fn start(arguments: &UpArguments) -> Result<Start, Failure> {
    let (directory, state) = match &arguments.data_dir {
        Some(path) => {
            let (directory, state) = DataDirectory::open(path)?;
            (Some(Arc::new(directory)), state)
        }
        None => (None, None),
    };
    let (Some(directory), Some(state)) = (&directory, state) else {
        let layout = wanted(arguments, &Layout::default());
        let shape = Shape { layout: layout.clone(), speed: arguments.speed };
        let clock = compose::wall_clock();
        let cluster = if arguments.rbac {
            compose::bare_cluster(&shape, clock)?
        } else {
            compose::cluster(&shape, clock)?
        };
        if arguments.rbac {
            compose::guard(&cluster, None)?;
        }
        return Ok(Start { cluster, layout, directory, resumed: None });
    };
    let layout = state.layout.clone();
    if wanted(arguments, &layout) != layout {
        return Err(format!(
            "the flags contradict {}, which keeps a cluster of {}: leave --platform, \
             --control-plane, --workers and --compact out, or give another --data-dir",
            directory.file().display(),
            describe(&layout),
        )
        .into());
    }
    let (resumed, signer) = (Some(state.revision), state.signer.clone());
    let cluster =
        compose::resumed(state, arguments.speed).map_err(|error| directory.refuse(error))?;
    if arguments.rbac {
        compose::guard(&cluster, signer)?;
    }
    Ok(Start { cluster, layout, directory: Some(Arc::clone(directory)), resumed })
}

/// What the flags ask for, where they say nothing as in `otherwise`.
fn wanted(arguments: &UpArguments, otherwise: &Layout) -> Layout {
    let workers = if arguments.compact { Some(0) } else { arguments.workers };
    Layout {
        platform: arguments.platform.unwrap_or(otherwise.platform),
        control_plane: arguments.control_plane.unwrap_or(otherwise.control_plane),
        workers: workers.unwrap_or(otherwise.workers),
        compact: arguments.compact || otherwise.compact,
        ..otherwise.clone()
    }
}

/// A layout in the words of the flags.
fn describe(layout: &Layout) -> String {
    let platform = match layout.platform {
        Platform::OpenShift => "openshift",
        Platform::Kubernetes => "kubernetes",
    };
    let workers = if layout.compact {
        "--compact".to_owned()
    } else {
        format!("--workers {}", layout.workers)
    };
    format!("--platform {platform} --control-plane {} {workers}", layout.control_plane)
}

/// Keeps the state, if there is a directory for it; never ends.
async fn keep(directory: Option<&Arc<DataDirectory>>, cluster: &Cluster, layout: &Layout) {
    if let Some(directory) = directory {
        Arc::clone(directory).keep(cluster, layout).await;
    }
    std::future::pending::<()>().await;
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
    if arguments.rbac {
        println!(
            "Access      who shows a token may do what RBAC grants, who shows none is the admin"
        );
    }
    if arguments.no_operator && arguments.rbac {
        let platform = match layout.platform {
            Platform::OpenShift => "openshift",
            Platform::Kubernetes => "kubernetes",
        };
        println!(
            "Operator    none, nor CRDs; run: kata-operator manifests --platform {platform} --image REF | kubectl apply -f -"
        );
    } else if arguments.no_operator {
        // There, its Jobs need to know which image has the node agent.
        let image = match layout.platform {
            Platform::OpenShift => "",
            Platform::Kubernetes => " --node-agent-image simulated",
        };
        println!("Operator    none; run: kata-operator run --kubeconfig {file}{image}");
    } else {
        println!("Operator    running in this process, KataConfig CRD served");
    }
    println!("Kubeconfig  {file} (your ~/.kube/config was not touched)");
    println!(
        "Time        controllers, nodes and reboots are {} times faster than real",
        arguments.speed
    );
    let node = if layout.compact { "control-plane-0" } else { "worker-0" };
    println!(
        "Try:  export KUBECONFIG={file}; kubectl label node {node} kata=true; \
         kubectl apply -f examples/kataconfig.yaml; kubectl get kataconfig -w"
    );
}

#[expect(clippy::print_stdout, reason = "what the user starts the command for")]
fn announce_state(directory: &DataDirectory, resumed: Option<u64>) {
    let file = directory.file().display();
    match resumed {
        Some(revision) => println!("State       {file}, gone on from revision {revision}"),
        None => println!("State       {file}, a new cluster"),
    }
}

#[expect(clippy::print_stdout, reason = "what the user starts the command for")]
fn announce_end() {
    println!(
        "SIMULATED: exec, uptime, cmdline and processes are models, not measurements.          Ctrl-C stops"
    );
}
