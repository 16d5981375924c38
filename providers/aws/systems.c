/* SPDX-License-Identifier: Apache-2.0 */
/* The systems that EC2 has public images of, and where the newest image of each is named. Static data. */
#include "base/gp_base.h"

#include "providers/aws/systems.h"

#define CANONICAL "099720109477"
#define DEBIAN "136693071363"
#define AMAZON "137112412989"
const struct aws_os_row aws_os_rows[] = {
    {"ubuntu-24.04", "x86_64", "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
     CANONICAL, "ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-amd64-server-*"},
    {"ubuntu-24.04", "arm64", "/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id",
     CANONICAL, "ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-arm64-server-*"},
    {"ubuntu-22.04", "x86_64", "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id",
     CANONICAL, "ubuntu/images/hvm-ssd*/ubuntu-jammy-22.04-amd64-server-*"},
    {"ubuntu-22.04", "arm64", "/aws/service/canonical/ubuntu/server/22.04/stable/current/arm64/hvm/ebs-gp2/ami-id",
     CANONICAL, "ubuntu/images/hvm-ssd*/ubuntu-jammy-22.04-arm64-server-*"},
    {"debian-12", "x86_64", "/aws/service/debian/release/12/latest/amd64", DEBIAN, "debian-12-amd64-*"},
    {"debian-12", "arm64", "/aws/service/debian/release/12/latest/arm64", DEBIAN, "debian-12-arm64-*"},
    {"debian-13", "x86_64", "/aws/service/debian/release/13/latest/amd64", DEBIAN, "debian-13-amd64-*"},
    {"debian-13", "arm64", "/aws/service/debian/release/13/latest/arm64", DEBIAN, "debian-13-arm64-*"},
    {"amzn-2023", "x86_64", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64", AMAZON,
     "al2023-ami-2023.*-x86_64"},
    {"amzn-2023", "arm64", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64", AMAZON,
     "al2023-ami-2023.*-arm64"},
};
const size_t aws_os_row_count = GP_ARRAY_LEN(aws_os_rows);

const char *aws_image_os(size_t i) {
    for (size_t k = 0; k < GP_ARRAY_LEN(aws_os_rows); k++) {
        bool seen =
            k > 0 && strcmp(aws_os_rows[k].name, aws_os_rows[k - 1].name) == 0; /* rows of a system are neighbours */
        if (!seen && i-- == 0) return aws_os_rows[k].name;
    }
    return NULL;
}
