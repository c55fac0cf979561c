# Workers and command line on NVIDIA GPUs. This file has not been built yet.
#   docker build -f deploy/docker/gpu.Dockerfile -t xnq-dist:gpu .
#   docker run --rm --gpus all -v /data:/data xnq-dist:gpu doctor
# The wheels (such as `cupy-cuda12x[ctk]`) include CUDA 12 libraries, compiler and headers;
# the driver comes from the host. The installed size is about 8 GB.
FROM nvidia/cuda:12.8.1-base-ubuntu24.04

RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/xnq
ENV PATH=/opt/xnq/bin:$PATH \
    DO_NOT_TRACK=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    RAPIDS_NO_INITIALIZE=1

WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY xnq_dist ./xnq_dist
COPY flows ./flows
RUN pip install --no-cache-dir --extra-index-url https://pypi.nvidia.com '.[gpu]'

RUN useradd --create-home xnq
USER xnq
ENTRYPOINT ["xnq-dist"]
