# SPDX-License-Identifier: Apache-2.0
# Embeds templates/** and the agents into the program by .incbin; a table of {name, data, size}.
# The reports' schema is a published file that the program prints too. AGENT_GZ (from agent.mk): the compressed agents that this build could make.
EMBED_FILES := $(TEMPLATE_FILES) docs/report.schema.json $(AGENT_GZ)

$(B)/gen/embed.S: $(EMBED_FILES) templates/embed.mk Makefile
	@mkdir -p $(@D)
	@{ echo '/* made by templates/embed.mk */'; echo '.section .rodata'; n=0; \
	for f in $(EMBED_FILES); do \
	  name=$${f#templates/}; case $$f in *.gz) name=agent/$${f##*/};; esac; \
	  printf '.balign 16\n.Ld%d: .incbin "%s"\n.Le%d: .byte 0\n.Ln%d: .asciz "%s"\n' $$n "$$f" $$n $$n "$$name"; \
	  n=$$((n+1)); done; \
	echo '.section .data.rel.ro,"aw"'; echo '.balign 16'; echo '.globl template_table'; echo 'template_table:'; \
	i=0; while [ $$i -lt $$n ]; do printf '.quad .Ln%d, .Ld%d, .Le%d - .Ld%d\n' $$i $$i $$i $$i; i=$$((i+1)); done; \
	echo '.quad 0, 0, 0'; echo '.section .note.GNU-stack,"",%progbits'; } >$@

$(B)/obj/embed.o: $(B)/gen/embed.S
	@mkdir -p $(@D)
	$(Q)$(CC) -c $< -o $@
