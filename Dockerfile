# One image for every role; the role is the command: api, worker, dispatcher, migrate.
FROM python:3.11-slim AS build

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/venv/bin:$PATH
RUN python -m venv /opt/venv
WORKDIR /src
# The dependencies first: their layer is kept until the lock changes.
COPY requirements.lock ./
RUN pip install --require-hashes --only-binary :all: --requirement requirements.lock
COPY pyproject.toml README.md despacho.py ./
COPY app app
COPY workers workers
COPY migrations migrations
RUN pip install --no-deps --no-build-isolation .


# Nothing of the build but the finished environment: no compiler, no sources, no package cache.
FROM python:3.11-slim

RUN groupadd --system --gid 10001 despacho \
    && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/despacho --create-home --shell /usr/sbin/nologin despacho
COPY --from=build /opt/venv /opt/venv
COPY deploy/healthcheck.py policy.toml /etc/despacho/
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DESPACHO_API__HOST=0.0.0.0 \
    DESPACHO_METRICS_HOST=0.0.0.0 \
    DESPACHO_POLICY_FILE=/etc/despacho/policy.toml
USER 10001:10001
WORKDIR /var/lib/despacho
EXPOSE 8000 9100
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "/etc/despacho/healthcheck.py"]
# The exec form: the process is the container's first, so SIGTERM reaches it and it drains.
ENTRYPOINT ["despacho"]
CMD ["api"]
