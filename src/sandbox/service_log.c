/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/service_log.h"
#include "sandbox/internal.h"
#include "sandbox/record.h"

#include <stdio.h>

int service_act(struct core *core, const struct actor *actor, enum event_kind kind, struct str data, uint64_t *ret_seq,
                struct err *err)
{
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service stops");
    return record_act(core, SERVICE_LOG_ID, actor, kind, data, ret_seq, err);
}

void service_observe(struct core *core, uint64_t cause, enum event_kind kind, struct str data)
{
    record_observe(core, SERVICE_LOG_ID, NULL, cause, kind, data);
}

void service_refused(struct core *core, uint64_t cause, enum event_kind action, const struct err *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_str(&d, "what", str_of(event_kind_name(action)));
    record_error(&d, why);
    record_refusal(core, SERVICE_LOG_ID, NULL, cause, EVENT_SERVICE_REFUSED, event_data_end(&d));
}

void service_log_started(struct core *core)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_str(&d, "version", str_of(core->config.version));
    service_observe(core, 0, EVENT_SERVICE_STARTED, event_data_end(&d));
}

bool service_log_secret(struct core *core, const char *name, const char *what, int64_t uid)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    char actor[32];
    bool is_set = strcmp(what, "set") == 0;
    if (!name[0] || (!is_set && strcmp(what, "removed") != 0) || uid < 0 || uid > UINT32_MAX)
        return false;
    (void)snprintf(actor, sizeof(actor), "cli:uid=%lld", (long long)uid);
    event_data_str(&d, "name", str_of(name));
    record_observe(core, SERVICE_LOG_ID, actor, 0, is_set ? EVENT_SECRET_SET : EVENT_SECRET_REMOVED,
                   event_data_end(&d));
    return true;
}
