//! The command line: what all commands have in common. The flags of each are beside it.

use clap::{Parser, Subcommand};
use sanderling_config::ConfigCommand;
use sanderling_doctor::Doctor;
use sanderling_events::Events;
use sanderling_keys::tls::Tls;
use sanderling_keys::token::Token;
use sanderling_local::{Local, Tour};
use sanderling_serve::{Datanode, Gateway, ManagerArgs, NamenodeArgs, NamenodeCommand};
use sanderling_task::TaskCommand;
use sanderling_top::Top;

use crate::completions::Completions;
use crate::context::ContextCommand;
use crate::demo::Demo;
use crate::fs::Fs;
use crate::fsck::Fsck;
use crate::global::Global;
use crate::group::GroupCommand;
use crate::job::Job;
use crate::man::Man;
use crate::measure::{self, Measure};
use crate::node::NodeCommand;

/// Printed at the end of `sanderling --help`.
const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    failure; retrying does not help
  2    wrong command line
  3    not found
  4    unavailable: a server cannot be reached or has no room now; retry
  5    partial: some data is lost, the rest was done
  124  the deadline passed; 0 for what follows the cluster: top, --follow, --watch
  130  interrupted

Sizes are written 64MiB, 64M (both binary), 64MB or 1e9; durations 500ms, 30s, 2m.
stdout carries data; progress, logs and errors go to stderr. NO_COLOR is honoured.

Start here:
  sanderling tour
or, step by step:
  sanderling local start --datanodes 3
  sanderling fs put data.parquet /data.parquet
  sanderling node notice datanode-0 --deadline 30s --wait";

/// An elastic, ephemeral datastore that moves data off spot machines before they die.
#[derive(Debug, Parser)]
#[command(
    name = "sanderling",
    bin_name = "sanderling",
    version,
    after_help = format!("{AFTER_HELP}{}", measure::ABOUT),
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which cluster a command uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterUse {
    /// None: it works on this machine, or with servers that it starts.
    Nothing,
    /// The one that it is given. A server never joins the one that a person chose last.
    Given,
    /// Also that of the current context.
    Current,
}

impl Command {
    /// Returns what the process is called in its spans.
    pub(crate) const fn service(&self) -> &'static str {
        match self {
            Self::Namenode(_) => "sanderling-namenode",
            Self::Datanode(_) => "sanderling-datanode",
            Self::Manager(_) => "sanderling-manager",
            Self::Gateway(_) => "sanderling-gateway",
            _ => "sanderling-cli",
        }
    }

    pub(crate) fn cluster_use(&self) -> ClusterUse {
        match self {
            Self::Task(task) if !task.uses_cluster() => ClusterUse::Nothing,
            Self::Measure(measure) if !measure.uses_cluster() => ClusterUse::Nothing,
            Self::Namenode(args) if matches!(args.command, Some(NamenodeCommand::Backup(_))) => {
                ClusterUse::Current
            }
            Self::Demo(_)
            | Self::Tour(_)
            | Self::Local(_)
            | Self::Namenode(_)
            | Self::Tls(_)
            | Self::Context(_)
            | Self::Config(_)
            | Self::Token(Token::Secret(_))
            | Self::Man(_)
            | Self::Completions(_) => ClusterUse::Nothing,
            Self::Datanode(_) | Self::Manager(_) => ClusterUse::Given,
            _ => ClusterUse::Current,
        }
    }

    /// Returns whether the process begins traces, or continues those of its callers.
    pub(crate) const fn records_spans(&self) -> bool {
        match self {
            Self::Namenode(args) => args.command.is_none(),
            Self::Datanode(args) => args.command.is_none(),
            Self::Manager(_)
            | Self::Gateway(_)
            | Self::Fs(_)
            | Self::Node(_)
            | Self::Job(_)
            | Self::Fsck(_) => true,
            _ => false,
        }
    }

    /// Returns whether it starts servers, which inherit the environment.
    pub(crate) const fn starts_servers(&self) -> bool {
        matches!(
            self,
            Self::Tour(_) | Self::Local(Local::Start(_) | Local::Add(_) | Local::Restart(_))
        )
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See it work: drain a node here, kill it, and lose nothing
    Tour(Tour),
    /// Run the demonstration: queries while nodes are preempted
    #[command(disable_help_flag = true)]
    Demo(Demo),
    /// Start, stop and check a cluster on this machine
    #[command(subcommand)]
    Local(Local),
    /// Serve the catalog, with the manager inside
    Namenode(Box<NamenodeArgs>),
    /// Serve blocks
    Datanode(Box<Datanode>),
    /// Run the manager on its own
    Manager(ManagerArgs),
    /// Serve other tools' interfaces: S3
    #[command(subcommand)]
    Gateway(Gateway),
    /// Work with objects
    #[command(subcommand)]
    Fs(Fs),
    /// List nodes, give notices, decommission
    #[command(subcommand)]
    Node(NodeCommand),
    /// List namenodes of a group, move the leadership, remove members
    #[command(subcommand)]
    Group(GroupCommand),
    /// List, make, renew and end jobs
    #[command(subcommand)]
    Job(Job),
    /// Run commands with checkpoints, to continue on another machine
    #[command(subcommand)]
    Task(Box<TaskCommand>),
    /// Follow nodes, drains, throughput, jobs and events on one screen
    Top(Top),
    /// Show what happened to the cluster
    Events(Events),
    /// Check the catalog, and report what is lost
    Fsck(Fsck),
    /// What measures the store, or stands in for the world around it.
    #[command(flatten)]
    Measure(Measure),
    /// Make secrets and tokens
    #[command(subcommand)]
    Token(Token),
    /// Make certificates
    #[command(subcommand)]
    Tls(Tls),
    /// Name clusters, and choose the one that commands use
    #[command(subcommand)]
    Context(ContextCommand),
    /// Show and check the configuration of servers
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check this machine and the whole cluster
    Doctor(Doctor),
    /// Write the completions of a shell
    Completions(Completions),
    /// Write the manual pages of all commands
    Man(Man),
}
