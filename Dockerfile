# Targets: bff, runner, migrate, audit. Each holds one service, compiled, with its production dependencies.

FROM node:24-bookworm-slim AS build
WORKDIR /build
ENV CI=true
# The manifests alone first, so that a change of the sources does not install again.
COPY package.json pnpm-lock.yaml pnpm-workspace.yaml tsconfig.base.json ./
COPY packages/std/package.json packages/std/
COPY packages/protocol/package.json packages/protocol/
COPY packages/local-postgres/package.json packages/local-postgres/
COPY packages/store/package.json packages/store/
COPY packages/agent-kit/package.json packages/agent-kit/
COPY packages/artifacts/package.json packages/artifacts/
COPY packages/client/package.json packages/client/
COPY services/bff/package.json services/bff/
COPY services/runner/package.json services/runner/
COPY services/migrate/package.json services/migrate/
COPY services/audit/package.json services/audit/
COPY services/dev/package.json services/dev/
RUN npx -y "$(node -p 'require("./package.json").packageManager')" install --frozen-lockfile \
    --filter . --filter '{./services/bff}...' --filter '{./services/runner}...' --filter '{./services/migrate}...' --filter '{./services/audit}...'
COPY packages packages
COPY services services
COPY migrations migrations
RUN node_modules/.bin/tsc -b services/bff services/runner services/migrate services/audit
# The store knows the schema by the SQL files, which it expects as far away as they are in the repository.
RUN for service in bff runner migrate audit; do \
      npx -y "$(node -p 'require("./package.json").packageManager')" \
        --filter "@holdfast/$service" deploy --prod "/out/$service" \
      && cp -r migrations "$(realpath "/out/$service/node_modules/@holdfast/store")/../../migrations" \
      || exit 1; \
    done

FROM node:24-bookworm-slim AS service
WORKDIR /app
ENV HOST=0.0.0.0
# Files of runs; a volume that BFFs and runners share, unless they are in a bucket.
ENV HOLDFAST_DATA_DIR=/data
RUN mkdir /data && chown node:node /data
STOPSIGNAL SIGTERM

FROM service AS bff
COPY --from=build /out/bff ./
USER node
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT || 3000}/healthz`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "dist/main.js"]

FROM service AS runner
COPY --from=build /out/runner ./
USER node
ENV RUNNER_METRICS_PORT=9464
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.RUNNER_METRICS_PORT || 9464}/healthz`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "dist/main.js"]

FROM service AS migrate
COPY --from=build /out/migrate ./
USER node
HEALTHCHECK NONE
CMD ["node", "dist/main.js"]

FROM service AS audit
COPY --from=build /out/audit ./
USER node
HEALTHCHECK NONE
ENTRYPOINT ["node", "dist/main.js"]
