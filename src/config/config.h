/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the owner of the machine decides: one YAML file, strictly read, overridden by a few environment variables.
 *
 *   state_dir: /var/lib/cove            # COVE_STATE    templates, storage pool, event log, key
 *   run_dir: /run/cove                  # COVE_RUN      sockets
 *   listen: 127.0.0.1:7070              # COVE_LISTEN   or a list; numeric addresses, IPv6 in brackets
 *   listen_tls: 127.0.0.1:7443          # COVE_LISTEN_TLS  the same with TLS, once `cove domain set` has given it a certificate
 *   behind_tls_proxy: false             #               a proxy in front of a public address speaks TLS
 *   domain: sandboxes.example.org       # COVE_DOMAIN   for <port>-<sandbox>.<domain>; by itself what `cove domain set` says
 *   pool: {kind: auto, size: 100GiB}    # COVE_POOL     auto, btrfs, reflink, copy; size: what its file may grow to, 0: as the disk has room
 *   disk_reserve: 4GiB                  #               what sandboxes leave free; by itself 2 %, 1 to 8 GiB; 0: nothing
 *   owner: 0                            #               uid that may use the unix socket, besides root
 *   group: cove                         #               whose members may use it as tenants of their own
 *   log_level: info                     # COVE_LOG      debug, info, warn, error
 *   log_format: text                    # COVE_LOG_FORMAT  text, json
 *   defaults: {memory: 512MiB, cpus: 2, pids: 1024, disk: 10GiB, timeout: 5m}    # of a sandbox that does not say; 0: no limit;
 *                                       #               disk by itself a quarter of what the pool can hold, 20 GiB at most
 *   defaults: {checkpoint: off}         #               when its files are kept: after each action, each N, before risky ones
 *   limits: {sandboxes: 1000, timeout: 24h}
 *   tiers: {default: container, allow: [container], minimum: container}     # COVE_TIER: of a sandbox that does not say; all that are there are allowed
 *   tiers: {process: [/usr]}            #               what tier process shows of the host; by itself nothing, and no such tier
 *   microvm: {guest: /usr/share/cove/guest, emulate: false}    # COVE_MICROVM_GUEST, COVE_MICROVM_EMULATE: its kernel (cove-guest); without KVM, slowly
 *   keep: {events: 200000, ended: 10000, ended_for: 7d}    # of the log of one that lives; of those that ended
 *   observe: {processes: true, files: true}    # COVE_OBSERVE_PROCESSES, COVE_OBSERVE_FILES: what sandboxes' processes
 *   execute and write is recorded
 *   template: {mirror: http://deb.debian.org/debian, packages: [ripgrep]}    # of the base template
 *   images: {aliases: ["ubuntu:22.04=base"], insecure: [registry.local:5000]}    # COVE_IMAGE_ALIASES; local templates that stand for images
 *   builds: {concurrency: 2, step_timeout: 1h, timeout: 2h, disk: 0}         # of templates; at a time, of a step, of all
 *   builds: {allow: ["*.example.org"], deny: []}           # what steps may reach; by itself as `network` says
 *   network: {allow: ["*.example.org"], deny: [], trust: /usr/local/share/ca-certificates}    # of a sandbox that does not say; authorities trusted inside
 *   volumes: {host: [/srv/data]}                           # directories of the host whose content sandboxes may mount; by itself none
 *   mirrors: {apt: URL, pip: URL, npm: URL, env: ["GOPROXY=URL"]}           # apt: template.mirror; the others as variables in sandboxes and builds
 *
 * An unknown or repeated key, a wrong type or a value out of range is an error that names file and line; nothing is
 * guessed.
 */
#pragma once

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

#include <sys/socket.h>

#define CONFIG_RESERVE_AUTO UINT64_MAX
#define CONFIG_DISK_AUTO UINT64_MAX
#define CONFIG_DEFAULT_PATH "/etc/cove/cove.yaml"

enum {
    CONFIG_LISTEN_MAX = 16,
    CONFIG_PACKAGES_MAX = 256,
    CONFIG_IMAGES_MAX = 64,
    CONFIG_TIERS_MAX = 8,
    CONFIG_FILE_MAX = 64 * 1024,
    CONFIG_RULES_MAX = 256,
    CONFIG_TRUST_MAX = 64 * 1024
};

enum config_pool { CONFIG_POOL_AUTO, CONFIG_POOL_BTRFS, CONFIG_POOL_REFLINK, CONFIG_POOL_COPY };
extern const char *const config_pools[]; /* their names */

struct config_listen {
    char *text; /* as written */
    struct sockaddr_storage address;
    socklen_t address_len;
    bool is_loopback;
};

/* Owns all that it points to. Never changes after config_load(). */
struct config {
    char *state_dir, *run_dir; /* absolute, clean */
    struct config_listen listen[CONFIG_LISTEN_MAX];
    size_t n_listen; /* at least 1 */
    struct config_listen listen_tls[CONFIG_LISTEN_MAX];
    size_t n_listen_tls; /* at least 1 */
    bool asks_for_tls;   /* listen_tls was given */
    bool behind_tls_proxy, run_code_is_open;
    char *domain; /* NULL: none */
    uint32_t owner_uid;
    char *group;     /* whose members may use the local sockets; NULL: "cove" */
    gid_t group_gid; /* its number when the file was read, as coved doesn't see /etc later; (gid_t)-1: there is none */
    enum config_pool pool_kind;
    uint64_t pool_bytes;         /* 0: no bound */
    uint64_t disk_reserve_bytes; /* 0: none; CONFIG_RESERVE_AUTO: by the disk's size */
    enum log_level log_level;
    bool log_is_json;

    uint64_t default_memory_bytes, default_disk_bytes; /* 0: no limit; CONFIG_DISK_AUTO: a share of the pool */
    uint32_t default_cpu_milli, default_pids;
    uint64_t default_timeout_ms;
    char *default_tier, *minimum_tier; /* NULL: the weakest that there is; any */
    char *tiers[CONFIG_TIERS_MAX];     /* that are allowed; none: all */
    size_t n_tiers;
    char *process_paths[16]; /* clean; what sandboxes of tier process see of the host; none: no such tier */
    size_t n_process_paths;
    char *microvm_guest;  /* the directory of its kernel */
    bool microvm_emulate; /* without KVM */
    uint32_t max_sandboxes;
    uint64_t max_timeout_ms;
    uint32_t keep_events, keep_ended; /* as struct core_config has them, of which 0 is the default */
    uint64_t keep_ended_ms;
    bool observe_processes, observe_files; /* what the kernel says that sandboxes do is recorded, where it can be had */

    char *builds; /* lines `key=value` for cove-api (daemon/build_options.h); NULL: none */

    char *trust_paths[16], *trust; /* PEM, read from these; NULL: none */
    size_t n_trust_paths;
    char *host_paths[16]; /* clean; what lies there may be mounted into sandboxes */
    size_t n_host_paths;

    /* Not of the file: main sets them behind config_load(). Borrowed. */
    const char *key_prefix; /* of API keys that coved makes */
    const char *marker;     /* the file in the base template by which programs know a sandbox */

    char *template_mirror; /* NULL: the builder's own */
    char *template_packages[CONFIG_PACKAGES_MAX];
    size_t n_template_packages;
};

/* The file that counts: COVE_CONFIG, else the default one, which need not exist. Borrowed from the environment. */
const char *config_path(bool *ret_may_be_missing);

/* path NULL: config_path(). Blocks on the file. */
int config_load(const char *path, struct config **ret_config, struct err *err) WARN_UNUSED;
/* Fills config->trust, before anything that needs it. Blocks on the files. */
int config_read_trust(struct config *config, struct err *err) WARN_UNUSED;
void config_free(struct config *config);
DEFINE_AUTO(struct config *, config_free)

/* The same from text, without environment; `name` stands for the file in messages. */
int config_parse(const char *name, struct str text, struct config **ret_config, struct err *err) WARN_UNUSED;

/* "127.0.0.1:7070", "[::1]:7070", "localhost:7070", "*:7070". */
int config_listen_parse(struct str text, struct config_listen *ret_listen, struct err *err) WARN_UNUSED;

/* Refuses addresses that other machines reach unless there is a key and TLS is somebody's job. */
int config_check_listen(const struct config *config, bool has_key, struct err *err) WARN_UNUSED;
