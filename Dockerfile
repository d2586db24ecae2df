# hadolint global ignore=DL3008,DL3013
# (versions are Debian's, and those that pyproject.toml allows)
# An image with both commands, for engines that start containers.
#
#     docker build -t resnet-recipes .                          for NVIDIA GPUs
#     docker build -t resnet-recipes --build-arg DEVICE=cpu .
#     docker build -t resnet-recipes --build-arg EXTRAS=remote,wandb .
#     docker run --gpus all --shm-size=16g -v /data:/data -v ./runs:/home/user/runs resnet-recipes \
#         resnet-train recipe=mild data=/data/imagenet
#
# There is no compiler in it, which Triton needs for the fused operations: a run says so, and uses
# torch's own. With `apt-get install gcc python3-dev` in an image of yours they are used.
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
        g++ libjpeg62-turbo-dev python3-dev python3-pip python3-venv
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM debian:bookworm-slim
ARG DEVICE=cuda
ARG EXTRAS=
ENV PATH=/opt/venv/bin:$PATH
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
# PyPI has torch for CUDA, and torch's own index has it without.
RUN python3 -m venv /opt/venv \
    && if [ "$DEVICE" = cpu ]; then \
        pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch torchvision; \
    fi \
    && pip install --no-cache-dir "$(echo /wheels/*.whl)${EXTRAS:+[$EXTRAS]}"
RUN useradd --create-home --uid 1000 user
USER 1000
WORKDIR /home/user
CMD ["resnet-train", "--help"]
