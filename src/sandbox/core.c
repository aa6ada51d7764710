/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/core.h"
#include "base/mem.h"
#include "sandbox/action.h"
#include "sandbox/export.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/hold.h"
#include "sandbox/key.h"
#include "sandbox/life/life.h"
#include "sandbox/life/store.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/owner.h"
#include "sandbox/record/record.h"
#include "sandbox/start/spare.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/mounts.h"

static void on_lost(void *ctx)
{
    struct core *core = ctx;
    if (core->config.on_supervisor_lost)
        core->config.on_supervisor_lost(core->config.supervisor_lost_ctx);
}

static void on_restarted(void *ctx)
{
    struct core *core = ctx;
    core->figures.supervisor_came++;
    recovery_compare(core);
}

static void on_egress(void *ctx, int fd)
{
    networks_attach(((struct core *)ctx)->networks, fd);
}

static const struct supervisor_ops supervisor_ops = {.on_ended = sandbox_on_ended,
                                                     .on_seen = seen_record,
                                                     .on_egress = on_egress,
                                                     .on_restarted = on_restarted,
                                                     .on_lost = on_lost};

static void core_log_started(struct core *core)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("version", core->config.version));
    (void)action_note(core, SERVICE_LOG_ID, NULL, 0, EVENT_SERVICE_STARTED, event_data_end(&d));
}

int core_open(uv_loop_t *loop, const struct core_config *config, struct core **ret_core, struct err *err)
{
    struct core *core = mem_new(struct core);
    core->config = *config;
    core->config.state_dir = mem_strdup(config->state_dir);
    core->config.domain = mem_strdup(config->domain);
    core->config.version = mem_strdup(config->version);
    core->guard = config->guard ? config->guard : &guard_open;
    list_init(&core->holds);
    core->loop = loop_new(loop);
    list_init(&core->live);
    list_init(&core->ended);
    ends_open(core);
    AUTO_FREE char *templates = mem_printf("%s/templates", config->state_dir);
    core->templates = template_registry_new(templates);
    core->tenants = tenants_new(core);
    core->keys = keys_new();
    core->layers = layers_new(core);
    core->volumes = volumes_new(core);
    core->spares = spares_new(core);
    core->opened_at = clock_real();
    core->keeper = keeper_new(core);
    core->retention = retention_new(core);
    core->networks = networks_new(core);
    core->webhooks = webhooks_new(core);
    core->exporter = exporter_new(core);
    core->guards = guards_new(core);
    if (supervisor_new(core->loop, config->engine.supervisor_fd, &supervisor_ops, core, &core->supervisor, err) < 0 ||
        template_registry_load(core->templates, config->store, err) < 0 || tenants_load(core, err) < 0 ||
        keys_load(core, err) < 0 || webhooks_load(core, err) < 0 || exporter_load(core, err) < 0 ||
        volumes_load(core, err) < 0 || recovery_run(core, err) < 0 || volumes_check(core, err) < 0 ||
        spares_load(core, err) < 0) {
        core_close(core);
        return err_prefix(err, "start");
    }
    owners_tell(core);
    core_log_started(core);
    *ret_core = core;
    return 0;
}

static struct sandbox *any_sandbox(struct core *core)
{
    return map_any(&core->by_id);
}

void core_close(struct core *core)
{
    struct err why;
    core->closing = true;
    (void)err_set(&why, ERR_UNAVAILABLE, "the service is stopping");
    MAP_FOREACH (struct sandbox, sb, &core->by_id)
        sandbox_abandon(sb, &why);
    holds_end(core, NULL, "stopped");
    volumes_abandon(core, &why);
    loop_drain(core->loop); /* sessions of sandboxes that have just ended */
    if (core->supervisor)
        supervisor_free(core->supervisor);
    webhooks_free(core->webhooks);
    exporter_free(core->exporter);
    networks_free(core->networks);
    for (struct sandbox *sb; (sb = any_sandbox(core));) {
        sandbox_untable(sb);
        loop_alarm_clear(core->loop, &sb->forget_alarm);
        sandbox_unref(sb);
    }
    map_fini(&core->by_id);
    map_fini(&core->by_port_alias);
    spares_free(core->spares);
    volumes_free(core->volumes);
    layers_free(core->layers);
    retention_free(core->retention);
    keeper_free(core->keeper);
    ends_close(core);
    guards_free(core->guards);
    template_registry_free(core->templates);
    keys_free(core->keys);
    tenants_free(core->tenants);
    loop_free(core->loop);
    MEM_FREE(core->config.state_dir, core->config.domain, core->config.version, core);
}

const struct core_config *core_config(const struct core *core)
{
    return &core->config;
}

uv_loop_t *core_loop(const struct core *core)
{
    return loop_uv(core->loop);
}
