# hippo in a container: docker build -t hippo . && docker run --rm hippo plan --model llama-3-70b --cluster four-hubs
# Runs as any user, without a home, on a read-only file system. Results: docker run -v "$PWD/out:/out" hippo plan .. --out /out
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY configs configs
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl
# Compiled here, once, and only read afterwards.
ENV HIPPO_CACHE=/var/cache/hippo
RUN hippo plan --model llama-3-8b --cluster toy && chmod -R a+rX /var/cache/hippo
USER 10001
ENTRYPOINT ["hippo"]
CMD ["--help"]
