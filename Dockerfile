# whet for machines with NVIDIA GPUs: docker build --tag whet .
FROM python:3.12-slim

# gcc: Triton and the kernels for CPUs compile at run time. bubblewrap: the sandbox of programs.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap gcc libc6-dev openssh-client \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/whet
COPY pyproject.toml README.md LICENSE ./
COPY whet whet
RUN pip install --no-cache-dir .
# The user of the job has no home here, and compiled kernels need a place.
ENV HOME=/tmp PYTHONUNBUFFERED=1
CMD ["python", "-m", "whet", "--help"]
