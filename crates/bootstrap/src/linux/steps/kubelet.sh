up kubelet
