/* SPDX-License-Identifier: Apache-2.0 */
#include "event/kind.h"

static const struct event_kind_info kinds[EVENT_KIND_MAX] = {
    [EVENT_KIND_UNKNOWN] = {.name = "unknown"},

    [EVENT_SANDBOX_CREATE] = {.name = "sandbox.create", .action = true, .phase = "creating"},
    [EVENT_SANDBOX_STARTED] = {.name = "sandbox.started", .phase = "running"},
    [EVENT_SANDBOX_FAILED] = {.name = "sandbox.failed", .phase = "failed", .last = true},
    [EVENT_SANDBOX_KILL] = {.name = "sandbox.kill", .action = true, .phase = "stopping"},
    [EVENT_SANDBOX_EXPIRED] = {.name = "sandbox.expired"},
    [EVENT_SANDBOX_ENDED] = {.name = "sandbox.ended", .phase = "ended", .last = true},
    [EVENT_SANDBOX_TIMEOUT] = {.name = "sandbox.timeout", .action = true},
    [EVENT_SANDBOX_METADATA] = {.name = "sandbox.metadata", .action = true},
    [EVENT_SANDBOX_PAUSE] = {.name = "sandbox.pause", .action = true, .phase = "pausing"},
    [EVENT_SANDBOX_PAUSED] = {.name = "sandbox.paused", .phase = "paused"},
    [EVENT_SANDBOX_RESUME] = {.name = "sandbox.resume", .action = true, .phase = "resuming"},
    [EVENT_SANDBOX_RESUMED] = {.name = "sandbox.resumed", .phase = "running"},
    [EVENT_SANDBOX_SNAPSHOT] = {.name = "sandbox.snapshot", .action = true},
    [EVENT_SANDBOX_SNAPSHOTTED] = {.name = "sandbox.snapshotted"},
    [EVENT_SANDBOX_FORK] = {.name = "sandbox.fork", .action = true},
    [EVENT_SANDBOX_FORKED] = {.name = "sandbox.forked"},
    [EVENT_SANDBOX_CHECKPOINTED] = {.name = "sandbox.checkpointed"},
    [EVENT_SANDBOX_REWIND] = {.name = "sandbox.rewind", .action = true},
    [EVENT_SANDBOX_REWOUND] = {.name = "sandbox.rewound"},
    [EVENT_SANDBOX_NEST] = {.name = "sandbox.nest", .action = true},
    [EVENT_SANDBOX_NESTED] = {.name = "sandbox.nested"},
    [EVENT_SANDBOX_UNNESTED] = {.name = "sandbox.unnested"},

    [EVENT_EXEC_START] = {.name = "exec.start", .action = true},
    [EVENT_EXEC_STARTED] = {.name = "exec.started"},
    [EVENT_EXEC_FAILED] = {.name = "exec.failed"},
    [EVENT_EXEC_OUTPUT] = {.name = "exec.output"},
    [EVENT_EXEC_EXIT] = {.name = "exec.exit"},
    [EVENT_EXEC_CARRIED] = {.name = "exec.carried"},
    [EVENT_EXEC_CONNECT] = {.name = "exec.connect", .action = true},
    [EVENT_EXEC_INPUT] = {.name = "exec.input", .action = true},
    [EVENT_EXEC_CLOSE_STDIN] = {.name = "exec.close_stdin", .action = true},
    [EVENT_EXEC_SIGNAL] = {.name = "exec.signal", .action = true},
    [EVENT_CODE_RUN] = {.name = "code.run", .action = true},
    [EVENT_CODE_INTERRUPT] = {.name = "code.interrupt", .action = true},
    [EVENT_CODE_RESTART] = {.name = "code.restart", .action = true},
    [EVENT_CODE_REMOVE] = {.name = "code.remove", .action = true},
    [EVENT_CODE_DONE] = {.name = "code.done"},
    [EVENT_EXEC_RESIZE] = {.name = "exec.resize", .action = true},

    [EVENT_FILE_READ] = {.name = "file.read", .action = true},
    [EVENT_FILE_WRITE] = {.name = "file.write", .action = true},
    [EVENT_FILE_LIST] = {.name = "file.list", .action = true},
    [EVENT_FILE_STAT] = {.name = "file.stat", .action = true},
    [EVENT_FILE_MKDIR] = {.name = "file.mkdir", .action = true},
    [EVENT_FILE_MOVE] = {.name = "file.move", .action = true},
    [EVENT_FILE_REMOVE] = {.name = "file.remove", .action = true},
    [EVENT_FILE_PACK] = {.name = "file.pack", .action = true},
    [EVENT_FILE_UNPACK] = {.name = "file.unpack", .action = true},
    [EVENT_FILE_WATCH] = {.name = "file.watch", .action = true},
    [EVENT_FILE_DONE] = {.name = "file.done"},
    [EVENT_FILE_FAILED] = {.name = "file.failed"},

    [EVENT_FILE_WRITTEN] = {.name = "file.written"},
    [EVENT_PROC_EXEC] = {.name = "proc.exec"},
    [EVENT_PROC_EXIT] = {.name = "proc.exit"},

    [EVENT_DIAL] = {.name = "dial", .action = true},
    [EVENT_DIAL_FAILED] = {.name = "dial.failed"},

    [EVENT_NET_POLICY] = {.name = "net.policy", .action = true},
    [EVENT_NET_FAILED] = {.name = "net.failed"},
    [EVENT_NET_OPEN] = {.name = "net.open"},
    [EVENT_NET_CLOSE] = {.name = "net.close"},
    [EVENT_NET_FLOWS] = {.name = "net.flows"},
    [EVENT_NET_REQUEST] = {.name = "net.request"},
    [EVENT_NET_DENIED] = {.name = "net.denied"},
    [EVENT_NET_UNRESOLVED] = {.name = "net.unresolved"},
    [EVENT_NET_MISUSE] = {.name = "net.misuse"},
    [EVENT_NET_UP] = {.name = "net.up"},
    [EVENT_NET_DOWN] = {.name = "net.down"},

    [EVENT_VOLUME_CREATE] = {.name = "volume.create", .action = true},
    [EVENT_VOLUME_CREATED] = {.name = "volume.created"},
    [EVENT_VOLUME_DROP] = {.name = "volume.drop", .action = true},
    [EVENT_VOLUME_DROPPED] = {.name = "volume.dropped"},
    [EVENT_VOLUME_FAILED] = {.name = "volume.failed"},
    [EVENT_VOLUME_MOUNTED] = {.name = "volume.mounted"},
    [EVENT_VOLUME_UNMOUNTED] = {.name = "volume.unmounted"},
    [EVENT_VOLUME_REFUSED] = {.name = "volume.refused"},

    [EVENT_TEMPLATE_REQUEST] = {.name = "template.request", .action = true},
    [EVENT_TEMPLATE_BUILD] = {.name = "template.build", .action = true},
    [EVENT_TEMPLATE_CANCEL] = {.name = "template.cancel", .action = true},
    [EVENT_TEMPLATE_TAG] = {.name = "template.tag", .action = true},
    [EVENT_TEMPLATE_UNTAG] = {.name = "template.untag", .action = true},
    [EVENT_TEMPLATE_PUBLISH] = {.name = "template.publish", .action = true},
    [EVENT_TEMPLATE_REMOVE] = {.name = "template.remove", .action = true},
    [EVENT_TEMPLATE_FORGET] = {.name = "template.forget", .action = true},
    [EVENT_TEMPLATE_UPLOAD] = {.name = "template.upload", .action = true},
    [EVENT_TEMPLATE_BUILT] = {.name = "template.built"},
    [EVENT_TEMPLATE_FAILED] = {.name = "template.failed"},
    [EVENT_SECRET_SET] = {.name = "secret.set"},
    [EVENT_SECRET_REMOVED] = {.name = "secret.removed"},
    [EVENT_POOL_WARM] = {.name = "pool.warm", .action = true},
    [EVENT_POOL_COLLECT] = {.name = "pool.collect", .action = true},
    [EVENT_POOL_COLLECTED] = {.name = "pool.collected"},
    [EVENT_KEY_CREATE] = {.name = "key.create", .action = true},
    [EVENT_KEY_ROTATE] = {.name = "key.rotate", .action = true},
    [EVENT_KEY_REVOKE] = {.name = "key.revoke", .action = true},
    [EVENT_TENANT_CREATE] = {.name = "tenant.create", .action = true},
    [EVENT_TENANT_SET] = {.name = "tenant.set", .action = true},
    [EVENT_TENANT_REMOVE] = {.name = "tenant.remove", .action = true},
    [EVENT_WEBHOOK_CREATE] = {.name = "webhook.create", .action = true},
    [EVENT_WEBHOOK_SET] = {.name = "webhook.set", .action = true},
    [EVENT_WEBHOOK_REMOVE] = {.name = "webhook.remove", .action = true},
    [EVENT_WEBHOOK_FAILED] = {.name = "webhook.failed"},

    [EVENT_LIMIT_OOM] = {.name = "limit.oom"},
    [EVENT_LIMIT_PIDS] = {.name = "limit.pids"},
    [EVENT_LIMIT_DISK] = {.name = "limit.disk"},

    [EVENT_GUARD_DENIED] = {.name = "guard.denied"},
    [EVENT_GUARD_ASKED] = {.name = "guard.asked"},
    [EVENT_GUARD_JUDGED] = {.name = "guard.judged"},
    [EVENT_GUARD_SET] = {.name = "guard.set", .action = true},
    [EVENT_GUARD_STUCK] = {.name = "guard.stuck"},
    [EVENT_GUARD_ANSWERED] = {.name = "guard.answered"},

    [EVENT_AGENT_VIOLATION] = {.name = "agent.violation"},
    [EVENT_AGENT_LOST] = {.name = "agent.lost"},

    [EVENT_ENV_VIOLATION] = {.name = "env.violation", .action = true},
    [EVENT_ENV_RECEIVED] = {.name = "env.received", .action = true},

    [EVENT_SERVICE_STARTED] = {.name = "service.started"},
    [EVENT_SERVICE_REFUSED] = {.name = "service.refused"},
    [EVENT_SERVICE_DENIED] = {.name = "service.denied"},
    [EVENT_SERVICE_EXPORT] = {.name = "service.export", .action = true},
    [EVENT_SERVICE_RECOVERED] = {.name = "service.recovered"},

    [EVENT_LOG_SUPPRESSED] = {.name = "log.suppressed"},
    [EVENT_LOG_PRUNED] = {.name = "log.pruned"},
};

static const char *const sources[EVENT_SOURCE_MAX] = {
    [EVENT_SOURCE_UNKNOWN] = "unknown", [EVENT_CLIENT] = "client", [EVENT_AGENT] = "agent", [EVENT_HOST] = "host",
    [EVENT_KERNEL] = "kernel",
};

static const char *const grades[EVENT_GRADE_MAX] = {
    [EVENT_GRADE_UNKNOWN] = "unknown",
    [EVENT_OBSERVED_HOST] = "observed-host",
    [EVENT_OBSERVED_KERNEL] = "observed-kernel",
    [EVENT_CLAIMED] = "claimed",
};

const struct event_kind_info *event_kind_info(enum event_kind kind)
{
    return &kinds[(unsigned)kind < EVENT_KIND_MAX ? kind : EVENT_KIND_UNKNOWN];
}

const char *event_kind_name(enum event_kind kind)
{
    return event_kind_info(kind)->name;
}

enum event_kind event_kind_parse(struct str name)
{
    for (unsigned k = EVENT_KIND_UNKNOWN + 1; k < EVENT_KIND_MAX; k++)
        if (str_eqc(name, kinds[k].name))
            return (enum event_kind)k;
    return EVENT_KIND_UNKNOWN;
}

bool event_kind_is_action(enum event_kind kind)
{
    return event_kind_info(kind)->action;
}

const char *event_source_name(enum event_source source)
{
    return sources[(unsigned)source < EVENT_SOURCE_MAX ? source : EVENT_SOURCE_UNKNOWN];
}

const char *event_grade_name(enum event_grade grade)
{
    return grades[(unsigned)grade < EVENT_GRADE_MAX ? grade : EVENT_GRADE_UNKNOWN];
}
