/* SPDX-License-Identifier: Apache-2.0 */
/* The systems that EC2 has public images of. Static data. */
#ifndef GP_AWS_SYSTEMS_H
#define GP_AWS_SYSTEMS_H

#include <stddef.h>

struct aws_os_row {
    const char *name, *arch;
    const char *ssm;            /* public parameter with the newest id; NULL: none */
    const char *owner, *filter; /* the same by DescribeImages */
};
extern const struct aws_os_row aws_os_rows[]; /* rows of a system are neighbours */
extern const size_t aws_os_row_count;

const char *aws_image_os(size_t i); /* the systems' names; NULL ends */

#endif
