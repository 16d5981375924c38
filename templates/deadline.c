/* SPDX-License-Identifier: Apache-2.0 */
/* Renders the shell line with which cloud-init or bootstrap installs a node's own deadline. No I/O; any thread. */
#include "base/gp_base.h"

#include "templates/templates.h"

#define GRACE_S 300
#define TICK_S 30

static int render_conf(const struct deadline_req *req, struct str *conf, struct gp_error *err) {
    char expires[24], ttl[24], grace[24], tick[24], idle[24], controller[24];
    snprintf(expires, sizeof expires, "%lld", (long long)req->expires_s);
    snprintf(ttl, sizeof ttl, "%lld", (long long)req->ttl_s);
    snprintf(grace, sizeof grace, "%lld", (long long)(req->grace_s ? req->grace_s : GRACE_S));
    snprintf(tick, sizeof tick, "%lld", (long long)(req->tick_s ? req->tick_s : TICK_S));
    snprintf(idle, sizeof idle, "%lld", (long long)req->idle_s);
    snprintf(controller, sizeof controller, "%lld", (long long)req->controller_s);
    const struct template_var vars[] = {{"EXPIRES", expires},
                                        {"TTL", ttl},
                                        {"GRACE", grace},
                                        {"TICK", tick},
                                        {"IDLE", idle},
                                        {"CONTROLLER", controller},
                                        {"END", req->end_script != NULL ? "/etc/gpuprov/end.sh" : ""},
                                        {NULL, NULL}};
    return template_render("cloud-init/deadline.conf", vars, conf, err);
}

char *template_deadline_script(void) {
    const struct template_file *f = template_find("cloud-init/deadline.sh");
    GP_AUTO_STR struct str out = {0};
    const char *p = f != NULL ? (const char *)f->data : "", *end = p + (f != NULL ? f->size : 0);
    bool first = true;
    for (; p < end; first = false) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        const char *next = line_end != NULL ? line_end + 1 : end;
        while (p < next && *p == ' ') p++;
        if (first || (*p != '#' && *p != '\n')) str_add_mem(&out, p, (size_t)(next - p));
        p = next;
    }
    return str_steal(&out);
}

int template_deadline(const struct deadline_req *req, struct str *out, struct gp_error *err) {
    static const char line[] =
        "UID_=@@UID@@ CONF=@@b64:CONF@@ UNIT=@@b64:UNIT@@ SCRIPT=@@b64:SCRIPT@@ END_=@@b64:END@@; "
        "eval \"$(echo @@b64:INSTALL@@ | base64 -d)\"";
    if (req->expires_s <= 0 || req->ttl_s <= 0 || req->grace_s < 0 || req->tick_s < 0 || req->idle_s < 0 ||
        req->controller_s < 0)
        return gp_fail(err, GP_EUSAGE, "deadline: the node has no deadline");
    if (req->uid == NULL || req->uid[0] == '\0' || strspn(req->uid, "0123456789abcdef") != strlen(req->uid))
        return gp_fail(err, GP_EUSAGE, "deadline: the stack's uid is malformed");
    const struct template_file *unit = template_find("cloud-init/deadline.service");
    const struct template_file *install = template_find("cloud-init/install.sh");
    const struct template_file *end = req->end_script != NULL ? template_find(req->end_script) : NULL;
    if (!unit || !install || (req->end_script != NULL && !end))
        return gp_fail(err, GP_EINTERNAL, "the templates of a node's own deadline are not in this program");
    GP_AUTO_FREE char *script_text = template_deadline_script();
    GP_AUTO_FREE char *unit_text = xstrndup((const char *)unit->data, unit->size);
    GP_AUTO_FREE char *install_text = xstrndup((const char *)install->data, install->size);
    GP_AUTO_FREE char *end_text = end != NULL ? xstrndup((const char *)end->data, end->size) : xstrdup("");
    GP_AUTO_STR struct str conf = {0};
    int rc = render_conf(req, &conf, err);
    if (rc) return rc;
    const struct template_var vars[] = {{"UID", req->uid},   {"CONF", conf.s},          {"SCRIPT", script_text},
                                        {"UNIT", unit_text}, {"INSTALL", install_text}, {"END", end_text},
                                        {NULL, NULL}};
    return template_render_text("deadline", line, sizeof line - 1, vars, out, err);
}
