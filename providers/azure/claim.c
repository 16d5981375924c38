// SPDX-License-Identifier: Apache-2.0
/* The resource group of a stack: its claim, and the home of all its resources. Its name is unique in the
 * subscription, and deleting it removes everything. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"
#include "base/hash.h"

#include <ctype.h>

void azure_group_clear(struct azure_group *g) {
    free(g->name);
    free(g->region);
    tags_clear(&g->tags);
    *g = (struct azure_group){0};
}

/* Azure compares names of groups without regard to case; a collision is found by the tags. */
char *azure_group_name(const char *owner, const char *stack) {
    char hex[65];
    char *name = xasprintf("gpuprov-%s-%s", owner, stack);
    for (char *p = name; *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
    if (azure_is_name(name)) return name;
    free(name);
    sha256_hex(owner, strlen(owner), hex);
    return xasprintf("gpuprov-%.16s-%s", hex, stack);
}

int azure_group_read(const json_t *item, struct azure_group *ret, struct gp_error *err) {
    const char *name = json_str(item, "name", "");
    GP_AUTO_FREE char *region = azure_region(json_str(item, "location", ""));
    azure_group_clear(ret);
    if (!azure_is_name(name) || region[0] == '\0')
        return gp_fail(err, GP_EPROTO, "azure: a resource group in a reply has no valid name and location");
    ret->name = xstrdup(name);
    for (char *p = ret->name; *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
    ret->region = xstrdup(region);
    ret->deleting = strcasecmp(json_str(item, "properties.provisioningState", ""), "Deleting") == 0;
    ret->exists = true;
    ret->grants = json_object_get(json_at(item, "tags"), AZURE_ROLE_TAG) != NULL;
    azure_tags_decode(json_at(item, "tags"), &ret->tags);
    return 0;
}

int azure_group_get(struct azure *a, const char *name, struct azure_group *ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *url = azure_url(a, AZURE_RESOURCES, "/resourcegroups/%s", name);
    azure_group_clear(ret);
    int r = azure_call(a, "GET", url, NULL, REST_MISSING, &reply, err);
    if (r != 0 || reply.status == 404) return r;
    r = azure_group_read(reply.json, ret, err);
    if (r == 0 && strcasecmp(ret->name, name) != 0) {
        azure_group_clear(ret);
        return gp_fail(err, GP_EPROTO, "azure: the reply for the resource group '%s' is another group", name);
    }
    return r;
}

void azure_group_resource(const struct azure_group *g, struct resource *ret) {
    resource_init(ret, RES_GROUP, "azure");
    resource_set(&ret->region, g->region);
    tags_to_resource(&g->tags, -1, ret);
    free(ret->id);
    ret->id = azure_handle_text(g->name, "", "", ret->uid);
    ret->state = g->deleting ? RES_STOPPING : RES_RUNNING;
    ret->price_usd_per_h = 0;
}
