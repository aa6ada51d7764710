/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/target.h"
#include "http/request.h"

static struct str host_name(struct str host)
{
    return host.n && host.p[0] == '[' ? host : str_before(host, ':');
}

static bool is_address(struct str name)
{
    return name.n == 0 || name.p[0] == '[' || str_is_of(name, "0-9.");
}

static bool target_host_is_machine(struct str host)
{
    struct str name = host_name(host);
    return str_eq_nocase(name, STR("localhost")) || is_address(name);
}

/* "<digits>-<something>[-…]." and what stands in it. */
static bool host_label(struct str name, struct str *ret_port, struct str *ret_id)
{
    ssize_t dot = str_find_char(name, '.');
    struct str label, port, id;
    if (dot < 0)
        return false;
    label = str_n(name.p, (size_t)dot);
    if (!str_split(&label, '-', &port) || port.n == 0 || !str_split(&label, '-', &id) || !str_is_of(port, "0-9"))
        return false;
    *ret_port = port;
    *ret_id = id;
    return true;
}

static enum target_kind target_check(struct str id, struct str port, struct e2b_target *ret_target)
{
    uint64_t number;
    ret_target->id = id;
    if (id.n == 0 || id.n > 63 || !str_is_of(id, "a-z0-9")) {
        ret_target->problem = "Invalid sandbox ID";
        return TARGET_BAD;
    }
    if (str_to_u64(port, &number) < 0 || number == 0 || number > UINT16_MAX) {
        ret_target->problem = "Invalid sandbox port";
        return TARGET_BAD;
    }
    ret_target->port = (uint16_t)number;
    return TARGET_SANDBOX;
}

enum target_kind target_parse(struct str host, struct str id_header, struct str port_header,
                              struct e2b_target *ret_target)
{
    struct str name = host_name(host), port, id;
    bool has_headers = id_header.n || port_header.n;
    bool host_is_silent = target_host_is_machine(host) || (str_starts(name, STR("sandbox.")) && name.n > 8);
    bool host_says = host_label(name, &port, &id);
    *ret_target = (struct e2b_target){0};
    if (str_starts(name, STR("api.")))
        return TARGET_CONTROL;
    ret_target->is_by_header = has_headers && (host_is_silent || !host_says);
    if (has_headers && (host_is_silent || !host_says)) {
        if (!id_header.n || !port_header.n) {
            ret_target->problem = "missing header";
            return TARGET_BAD;
        }
        return target_check(id_header, port_header, ret_target);
    }
    return host_says ? target_check(id, port, ret_target) : TARGET_CONTROL;
}

enum target_kind target_of(const struct http_request *req, struct e2b_target *ret_target)
{
    return target_parse(http_header_get(req, "host"), http_header_get(req, "e2b-sandbox-id"),
                        http_header_get(req, "e2b-sandbox-port"), ret_target);
}
