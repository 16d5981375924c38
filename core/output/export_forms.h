/* SPDX-License-Identifier: Apache-2.0 */
/* Forms of `gpuprov export`: one struct export_stack, several texts for other programs. A form is pure: it appends to
 * a string. Its values come from clouds, hosts files and nodes: it escapes each as its format requires, and refuses
 * one that the format cannot hold. Adding a form is one file and one name in EXPORT_FORM_LIST. Any thread. */
#ifndef GP_OUTPUT_EXPORT_FORMS_H
#define GP_OUTPUT_EXPORT_FORMS_H

#include "base/error.h"
#include "base/str.h"
#include "model/export.h"

#define EXPORT_TEXT_MAX ((size_t)64 << 20)

struct export_form {
    const char *name; /* the word of the command: "ansible" */
    bool any_node;    /* nodes that are not ready are exported too */
    /* Appends the whole text. -GP_EUSAGE: a value cannot be written; nothing was appended that is of use. */
    int (*write)(const struct export_stack *s, struct str *out, struct gp_error *err);
};
/* The list of forms: a new form is one file, which defines export_form_NAME, and its name here. */
#define EXPORT_FORM_LIST(first, next) \
    first(ansible) next(gres) next(hostfile) next(slurm) next(ssh_config) next(terraform)
#define EXPORT_FORM_FIRST(name) #name
#define EXPORT_FORM_NEXT(name) "|" #name
#define EXPORT_FORMS EXPORT_FORM_LIST(EXPORT_FORM_FIRST, EXPORT_FORM_NEXT) /* "ansible|gres|..." */
#define EXPORT_FORM_DECLARE(name) extern const struct export_form export_form_##name;
EXPORT_FORM_LIST(EXPORT_FORM_DECLARE, EXPORT_FORM_DECLARE)
extern const struct export_form *const export_forms[]; /* NULL ends; in the order of EXPORT_FORMS */
/* NULL: there is none. */
const struct export_form *export_form(const char *name);
/* The whole text of a form. -GP_EVALIDATE: a node is not ready, and neither the form nor `unproven` takes it. */
int export_write(const struct export_stack *s, const struct export_form *form, bool unproven, struct str *out,
                 struct gp_error *err);

/* -GP_EUSAGE, with the node and the value in the message. */
int export_refuse(const struct export_node *n, const char *what, const char *value, const char *why,
                  struct gp_error *err);
/* Refuses text that is not UTF-8: JSON cannot hold it. */
int export_check_text(const struct export_node *n, const char *what, const char *value, struct gp_error *err);
/* Refuses an address that is not one word of a host name or address, or that has a zone ('%'). */
int export_check_address(const struct export_node *n, const char *address, struct gp_error *err);

#endif
